#!/bin/sh
# The first hour on a GPU: builds recoup for a Python's PyTorch, runs checks and measurements in the order
# of what they teach, and writes results.json and page.html as it goes. Needs no network. At most 25
# minutes in all; --part N runs a part, at most 9 minutes. See docs/first-gpu-hour.md.
#
#     tools/gpu_first_hour.sh [--out DIR] [--part N] [--again] [--rehearsal]
#     PYTHON=/opt/python/bin/python tools/gpu_first_hour.sh
set -eu
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu_first_hour" "$@"
