#!/bin/sh
# Builds recoup for Linux on arm64, and runs its tests under qemu: all of the core's, and some with PyTorch.
# On a machine of arm64, `make test` runs all of them.
#
#     tools/test_arm64.sh PYTHON TORCH [argument of pytest]...
#
# PYTHON is a Python 3.11 with requirements-build.txt and requirements-dev.txt. The tests with PyTorch run in
# a chroot, so this needs root.
set -eu
python=$1
torch=$2
shift 2
cd "$(dirname "$0")/.."
. tools/arm64_root.sh
build=$PWD/build/arm64
arm64_need qemu-aarch64-static=qemu-user-static update-binfmts=binfmt-support
arm64_root "$build/root"

cmake -S . -B "$build/core" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/arm64.cmake" \
  -DRECOUP_ARM64_ROOT="$root" -DRECOUP_WITH_TORCH=OFF >/dev/null
cmake --build "$build/core" --target recoup_core_tests
# recoup_thread_tests need ThreadSanitizer, which does not run under qemu. The prefix is for tests that start
# their own program again.
QEMU_LD_PREFIX=$root ctest --test-dir "$build/core" -R recoup_core_tests --output-on-failure

arm64_torch "$python" "$torch"
arm64_wheel "$python" "$torch" "$build/wheel"
site=$root/opt/$torch
rm -rf "$site"/recoup*
"$python" -m zipfile -e "$build"/wheel/recoup-*.whl "$site"
[ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
[ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || update-binfmts --enable qemu-aarch64
# The mounts of the chroot end with the namespace that they are made in.
run() {
  unshare --mount tools/in_arm64_root.sh "$root" "/opt/$torch" "$@"
}
if [ "$#" != 0 ]; then
  run "$@"
else
  # qemu refuses /proc/self/status and /proc/self/fd (ELOOP), which the first three read. The last one expects
  # nothing on stderr, where PyTorch writes that it does not know the emulated processor.
  spill=tests/python/spill/test_spill.py
  # A process for each file: qemu's memory for the mappings of a process grows until its end.
  for file in contract/test_contract_replays contract/test_contract_versions torch_compat/test_settings; do
    run -m "not slow" tests/python/$file.py
  done
  run -m "not slow" --deselect $spill::test_a_spill_tier_uses_little_memory \
    --deselect $spill::test_wrong_data_from_the_disk_is_an_error \
    --deselect $spill::test_recomputable_values_do_not_need_a_good_disk \
    --deselect $spill::test_no_value_is_fetched_at_the_end_of_the_process $spill
  RECOUP_FUZZ_SEEDS=${RECOUP_FUZZ_SEEDS:-0:8} run -m slow tests/python/programs/test_random_programs.py
fi
