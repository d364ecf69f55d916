# To be sourced. An environment of its own in FOLDER/venv, with that PyTorch and what pip is told beside it;
# sets venv and pip.
#
#     torch_venv PYTHON FOLDER VERSION [argument of pip]...
torch_venv() {
  venv=$2/venv
  pip="$venv/bin/pip --disable-pip-version-check --quiet"
  [ -x "$venv/bin/pip" ] || "$1" -m venv "$venv"
  torch="torch==$3"
  shift 3
  # First and alone, and named again: nothing may bring another one.
  $pip install "$torch"
  $pip install "$torch" "$@"
}
