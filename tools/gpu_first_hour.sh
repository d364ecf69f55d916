#!/bin/sh
# The first hour on a GPU: builds recoup for a Python's PyTorch, runs checks and measurements, the most
# informative first, and updates results.json and page.html after each. Needs no network. Takes at most
# 39 minutes; --part N runs one part, at most 9 minutes. See docs/first-gpu-hour.md.
#
#     tools/gpu_first_hour.sh [--out DIR] [--part N] [--again] [--rehearsal]
#     PYTHON=/opt/python/bin/python tools/gpu_first_hour.sh
set -eu
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu_first_hour" "$@"
