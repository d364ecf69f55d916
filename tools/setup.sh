#!/usr/bin/env bash
# Checks the system packages that the build needs, then makes the virtual environment. As root it installs
# missing packages; for other users it prints the command that does.
# Usage: tools/setup.sh PYTHON VENV [PROGRAM]...     a PROGRAM is needed too; its package has its name
set -euo pipefail

python=$1
venv=$2
programs=("${@:3}")
min_cmake=3.25

fail() {
  echo "recoup: $*" >&2
  exit 1
}

has_header() {
  echo "#include <$1>" | c++ -x c++ -fsyntax-only - 2>/dev/null
}

# Tests for programs and headers instead of package names, so that other installations of them count.
missing_packages() {
  command -v cmake >/dev/null || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  command -v ccache >/dev/null || echo ccache
  if command -v c++ >/dev/null; then
    has_header gtest/gtest.h || echo libgtest-dev
    has_header boost/version.hpp || echo libboost-dev
    has_header zlib.h || echo zlib1g-dev
    has_header xxhash.h || echo libxxhash-dev
    has_header liburing.h || echo liburing-dev
  else
    echo g++ libgtest-dev libboost-dev zlib1g-dev libxxhash-dev liburing-dev
  fi
  "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
  "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || echo python3-dev
  for program in "${programs[@]}"; do
    command -v "$program" >/dev/null || echo "$program"
  done
}

command -v "$python" >/dev/null || fail "no $python here: install Python 3.10 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  fail "needs Python 3.10 or newer, $python is $("$python" -V 2>&1): make PYTHON=python3.11 picks another"

missing=$(missing_packages | xargs)
if [[ -n $missing ]]; then
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    fail "system packages are missing, run: sudo apt-get install -y $missing"
  fi
  echo "recoup: installing system packages: $missing"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # shellcheck disable=SC2086  # a list of names
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

echo 'int main() {}' | c++ -std=c++20 -x c++ -fsyntax-only - 2>/dev/null ||
  fail "c++ knows no C++20: install GCC 12 or newer"

[[ -x $venv/bin/pip ]] || "$python" -m venv "$venv"

# Ubuntu 22.04 has an older CMake; the wheel comes first in the Makefile's PATH.
cmake_version=$(cmake --version | sed -n '1s/[^0-9]*//p')
if [[ $(printf '%s\n' "$min_cmake" "$cmake_version" | sort -V | head -n 1) != "$min_cmake" ]]; then
  "$venv/bin/pip" install --quiet --disable-pip-version-check cmake==3.31.10
fi
