#!/bin/sh
# Runs the GPU tests with PyTorch's CUDA build on the stand-in for CUDA (tests/cuda_stand_in), on a
# machine without GPU and driver. Needs the headers of a CUDA toolkit, CMake, Ninja, and the libraries
# that recoup is built from. PyTorch is installed without the packages of NVIDIA and Triton, in an
# environment of its own.
#
#     tools/test_cuda_stand_in.sh PYTHON VERSION [argument of pytest]...
#
# CMAKE_ARGS is passed on. JOBS is the number of compilers that run at a time. With MUTATE=1 it instead
# removes recoup's waits and events one at a time: see tests/cuda_stand_in/mutate.py. With FIRST_HOUR=1
# it instead runs tools/gpu_first_hour.sh in tiny sizes: see docs/first-gpu-hour.md. With HOST=1 it
# instead measures the time of the host: see bench/host.py.
set -eu
python=$1
version=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/cuda-stand-in/torch-$version
venv=$build/venv

if ! [ -e "$venv/.stamp" ]; then
  "$python" -m venv "$venv"
  pip="$venv/bin/pip --disable-pip-version-check --quiet"
  $pip install --no-deps "torch==$version"
  $pip install typing_extensions sympy networkx jinja2 fsspec filelock setuptools
  # The tests' requirements that do not depend on torch.
  grep -E '^(numpy|rich|pytest|scikit-learn|transformers)==' "$root/requirements-dev.txt" >"$build/requirements.txt"
  $pip install -r "$build/requirements.txt"
  # torchvision's minor version is PyTorch's plus 15. Without it, trainings of its models are skipped.
  minor=${version#*.}
  $pip install --no-deps "torchvision==0.$((${minor%%.*} + 15)).${minor#*.}" pillow ||
    echo "no torchvision for PyTorch $version"
  touch "$venv/.stamp"
fi

devices=$build/devices
cmake -S "$root/tests/cuda_stand_in" -B "$devices" -G Ninja -DPython_EXECUTABLE="$venv/bin/python" >/dev/null
cmake --build "$devices" -j "${JOBS:-2}"

# shellcheck disable=SC2086
cmake -S "$root" -B "$build/recoup" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DPython_EXECUTABLE="$venv/bin/python" -DRECOUP_WITH_CUDA=ON -DRECOUP_BUILD_TESTS=OFF \
  -DRECOUP_BUILD_EXAMPLES=OFF -DCUDA_cudart_static_LIBRARY="$devices/libcudart.so.13" ${CMAKE_ARGS:-}
cmake --build "$build/recoup" -j "${JOBS:-2}"
site=$build/site
rm -rf "$site"
cmake --install "$build/recoup" --prefix "$site/recoup" >/dev/null
cmake --install "$build/recoup" --prefix "$site/recoup" --component python >/dev/null
cp -r "$root/python/recoup/." "$site/recoup/"

cd "$root/tests/python/gpu"
export CUDA_STAND_IN_KERNELS="$devices/libstand_in_kernels.so"
export CUDA_STAND_IN_TOOLKIT="$(sed -n 's/^CUDAToolkit_CUPTI_INCLUDE_DIR:PATH=//p' "$devices/CMakeCache.txt" | head -n 1)"
export CUDA_STAND_IN_DEVICES="${CUDA_STAND_IN_DEVICES:-2}"
export OMP_NUM_THREADS=1
export PYTHONPATH="$root/tests/cuda_stand_in/python:$site:$root/tests/python/support:$root/tests/python/programs:$root/tests/python/gpu:$root/tests/python:$root/tests/cuda_stand_in"
LD_PRELOAD=$(cat "$devices/preload")
export LD_PRELOAD
export RECOUP_TEST_GPU="${RECOUP_TEST_GPU:-cuda:0}"
if [ -n "${MUTATE:-}" ]; then
  exec "$venv/bin/python" "$root/tests/cuda_stand_in/mutate.py" "$@"
fi
if [ -n "${HOST:-}" ]; then
  export CUDA_STAND_IN_HOST_ONLY=1 CUDA_STAND_IN_DEVICES=1
  export CUDA_STAND_IN_MEMORY="${CUDA_STAND_IN_MEMORY:-80G}" CUDA_STAND_IN_PINNED=32G
  export CUBLAS_WORKSPACE_CONFIG="${CUBLAS_WORKSPACE_CONFIG:-:4096:8}"
  export LD_PRELOAD="$LD_PRELOAD:$devices/libstand_in_heap.so"
  exec "$venv/bin/python" "$root/bench/host.py" "$@"
fi
if [ -n "${FIRST_HOUR:-}" ]; then
  # So little memory that a few doublings of a batch exceed it, and workspaces for tiny budgets.
  export CUDA_STAND_IN_MEMORY="${CUDA_STAND_IN_MEMORY:-128M}"
  export CUBLAS_WORKSPACE_CONFIG=:16:8
  exec "$venv/bin/python" "$root/tools/gpu_first_hour" --rehearsal --device cuda:0 --no-build \
    --out "$build/first-hour" "$@"
fi
exec "$venv/bin/python" -m pytest -c /dev/null \
  --rootdir "$root/tests/python" -p no:cacheprovider -ra \
  test_gpu.py test_cuda_stand_in.py test_cuda_stand_in_trainings.py test_host_only.py "$@"
