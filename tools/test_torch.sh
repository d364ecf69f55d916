#!/bin/sh
# Builds recoup for another PyTorch, in an environment of its own, installs it as a user would and runs
# the tests. Gigabytes are downloaded for a PyTorch with CUDA.
#
#     tools/test_torch.sh PYTHON VERSION [argument of pytest]...
set -eu
python=$1
version=$2
shift 2
cd "$(dirname "$0")/.."
folder=$PWD/build/torch-$version
venv=$folder/venv
pip="$venv/bin/pip --disable-pip-version-check --quiet"

[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"
# First and alone, and named again: nothing may bring another one.
$pip install "torch==$version"
$pip install "torch==$version" -r requirements-dev.txt
export PATH="$venv/bin:$PATH" CMAKE_BUILD_PARALLEL_LEVEL=2
$pip install --no-build-isolation --no-deps --force-reinstall -C build-dir="$folder/build" .
cmake --build "$folder/build" --target recoup_test_device
RECOUP_TEST_DEVICE=$(find "$folder/build" -name '_test_device*.so')
export RECOUP_TEST_DEVICE
exec "$venv/bin/python" -m pytest -p no:cacheprovider "$@"
