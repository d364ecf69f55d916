# To be sourced. Environments with other versions of PyTorch and of Python.
#
#     python_tag PYTHON                    prints its tag in names of wheels: cp311
#     torch_folder PYTHON VERSION          sets folder, where this pair of versions is built
#     torch_venv PYTHON FOLDER VERSION [argument of pip]...
#                                          makes an environment in FOLDER/venv with that PyTorch and the
#                                          packages in pip's arguments; sets venv and pip
python_tag() {
  "$1" -c "import sys; print('cp%d%d' % sys.version_info[:2])"
}

torch_folder() {
  folder=$PWD/build/torch-$2-$(python_tag "$1")
}

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
