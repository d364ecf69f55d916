#!/bin/sh
# Runs the tests with PyTorch: JOBS processes share those that can run beside others, and the tests that
# are marked `serial` follow in one process.
#
#     JOBS=2 tools/run_tests.sh PYTHON [argument of pytest]...
set -eu
python=$1
shift
none=5  # pytest's exit status when it has selected no test

# One thread for each process: the processes have the cores. Serial tests have as many as PyTorch takes.
beside=0
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$python" -m pytest -n "${JOBS:-1}" --dist loadfile \
  -m "not slow and not serial" "$@" || beside=$?
[ $beside = 0 ] || [ $beside = $none ] || exit $beside

alone=0
"$python" -m pytest -m "not slow and serial" "$@" || alone=$?
[ $beside = 0 ] && [ $alone = $none ] || exit $alone
