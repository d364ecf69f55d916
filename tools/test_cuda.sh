#!/bin/sh
# Builds recoup for the PyTorch of a Python with CUDA, outside of .venv, and runs the tests on its GPU.
# Needs CMake 3.25, Ninja and pytest, but no network and no GoogleTest.
#
#     tools/test_cuda.sh PYTHON [argument of pytest]...
#
# CMAKE_ARGS is passed on. Libraries that the system lacks are unpacked from third_party/.
set -eu
python=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/cuda

"$python" - <<'END' || { echo "make test-cuda: no GPU: skipped"; exit 0; }
import sys
try:
    import torch
except ImportError:
    sys.exit(f"{sys.executable} has no torch")
if torch.version.cuda is None:
    sys.exit(f"PyTorch {torch.__version__} has no CUDA")
if not torch.cuda.is_available():
    sys.exit("PyTorch sees no GPU")
print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
END

# shellcheck disable=SC2086
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$(command -v "$python")" \
  -DRECOUP_WITH_CUDA=ON -DRECOUP_BUILD_TESTS=OFF -DRECOUP_BUILD_EXAMPLES=OFF ${CMAKE_ARGS:-}
cmake --build "$build"
rm -rf "$build/site"
cmake --install "$build" --prefix "$build/site/recoup" >/dev/null
cmake --install "$build" --prefix "$build/site/recoup" --component python >/dev/null
cp -r "$root/python/recoup/." "$build/site/recoup/"

# Without the project's settings, which require a newer pytest.
cd "$root/tests/python/gpu"
PYTHONPATH=$build/site:$root/tests/python/support:$root/tests/python/programs:$root/tests/python RECOUP_TEST_GPU=${RECOUP_TEST_GPU:-cuda:0} \
  "$python" -m pytest -c /dev/null --rootdir "$root/tests/python" -p no:cacheprovider -ra test_gpu.py "$@"
