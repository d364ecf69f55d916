#!/bin/sh
# Runs the tests with PyTorch: JOBS processes share the tests that can run in parallel, and those marked
# `serial` follow in one process.
#
#     JOBS=2 tools/run_tests.sh PYTHON [argument of pytest]...
set -eu
python=$1
shift
none=5  # pytest's exit status when it has selected no test

# One thread for each process, as the processes use all cores. Serial tests have PyTorch's default.
parallel=0
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$python" -m pytest -n "${JOBS:-1}" --dist loadfile \
  -m "not slow and not serial" --durations 10 "$@" || parallel=$?
[ $parallel = 0 ] || [ $parallel = $none ] || exit $parallel

alone=0
"$python" -m pytest -m "not slow and serial" --durations 10 "$@" || alone=$?
[ $parallel = 0 ] && [ $alone = $none ] || exit $alone
