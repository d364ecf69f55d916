#!/bin/sh
# Builds recoup for another PyTorch, in an environment of its own, installs it as a user would and runs
# the tests. A PyTorch with CUDA is a download of gigabytes.
#
#     tools/test_torch.sh PYTHON VERSION [argument of pytest]...
set -eu
python=$1
version=$2
shift 2
cd "$(dirname "$0")/.."
. tools/torch_venv.sh
torch_folder "$python" "$version"
torch_venv "$python" "$folder" "$version" -r requirements-dev.txt
export PATH="$venv/bin:$PATH"
$pip install --no-build-isolation --no-deps --force-reinstall --config-settings build-dir="$folder/build" .
cmake --build "$folder/build" --target recoup_test_device
RECOUP_TEST_DEVICE=$(find "$folder/build" -name '_test_device*.so')
export RECOUP_TEST_DEVICE
exec tools/run_tests.sh "$venv/bin/python" -p no:cacheprovider "$@"
