#!/bin/sh
# Installs recoup as a user would, with frameworks of pinned versions, in an environment of its own, and
# runs the tests that train with them.
#
#     tools/test_frameworks.sh PYTHON VERSION [argument of pytest]...
set -eu
python=$1
version=$2
shift 2
cd "$(dirname "$0")/.."
folder=$PWD/build/frameworks
. tools/torch_venv.sh
torch_venv "$python" "$folder" "$version" -r requirements-frameworks.txt
export PATH="$venv/bin:$PATH"
$pip install --no-build-isolation --no-deps --force-reinstall --config-settings build-dir="$folder/build" .
[ $# -gt 0 ] || set -- tests/frameworks
exec "$venv/bin/python" -m pytest -p no:cacheprovider "$@"
