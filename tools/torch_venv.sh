# To be sourced. Makes an environment in FOLDER/venv with that PyTorch and the packages in pip's arguments;
# sets venv and pip.
#
#     torch_venv PYTHON FOLDER VERSION [argument of pip]...
torch_venv() {
  venv=$2/venv
  pip="$venv/bin/pip --disable-pip-version-check --quiet"
  [ -x "$venv/bin/pip" ] || "$1" -m venv "$venv"
  torch="torch==$3"
  shift 3
  # Installed first and alone, and named again, so that no other requirement changes it.
  $pip install "$torch"
  $pip install "$torch" "$@"
}
