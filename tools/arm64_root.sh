# To be sourced. Makes what a build for arm64 on another machine needs; no program of arm64 runs for it.
#
#     arm64_root FOLDER                    a Debian for arm64 in FOLDER; sets root
#     arm64_torch PYTHON VERSION           PyTorch and the packages of the tests in $root/opt/VERSION
#     arm64_wheel PYTHON VERSION OUT       a wheel of recoup for this PyTorch in the folder OUT
#
# The Debian has Python 3.11, so PYTHON must be one, too. PyTorch's package for arm64 is that with CUDA: a
# download of 3 GB with the libraries that it loads.
arm64_headers=libc6-dev,libstdc++-12-dev,libgtest-dev,libgmock-dev,zlib1g-dev,liburing-dev,libboost-dev
arm64_headers=$arm64_headers,libxxhash-dev,python3-dev

# arm64_need PROGRAM=PACKAGE...: installs the packages of programs that are missing.
arm64_need() {
  missing=""
  for pair in "$@"; do
    command -v "${pair%=*}" >/dev/null || missing="$missing ${pair#*=}"
  done
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "recoup: system packages are missing, run: sudo apt-get install -y$missing" >&2
    return 1
  fi
  echo "recoup: installing system packages:$missing"
  apt-get update -qq
  # shellcheck disable=SC2086  # a list of names
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

arm64_root() {
  root=$1
  arm64_need debootstrap=debootstrap aarch64-linux-gnu-g++=g++-aarch64-linux-gnu
  [ ! -e "$root/.stamp" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "recoup: debootstrap needs root: run this as root" >&2
    return 1
  fi
  echo "recoup: making a Debian for arm64 in $root: a minute and 1 GB"
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --arch=arm64 --variant=minbase --foreign --include="$arm64_headers" bookworm "$root" \
    >"$root.log" || { tail -n 5 "$root.log" >&2; return 1; }
  # To configure the packages, programs of arm64 would have to run for minutes. The files are enough.
  for package in "$root"/var/cache/apt/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$root"
  done
  rm -r "$root/var/cache/apt/archives"
  touch "$root/.stamp"
}

arm64_torch() {
  [ ! -e "$root/opt/$2.stamp" ] || return 0
  "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "recoup: $1 must be Python 3.11, as that of the Debian for arm64" >&2
    return 1
  }
  rm -rf "$root/opt/$2"
  mkdir -p "$root/opt"
  grep -E '^(numpy|rich|pytest)==' requirements-dev.txt >"$root/opt/requirements.txt"
  # shellcheck disable=SC2046  # a list of words
  "$1" -m pip --disable-pip-version-check --quiet install --no-compile --root-user-action ignore \
    --target "$root/opt/$2" $(seq -f '--platform manylinux_2_%g_aarch64' 17 36) \
    --platform manylinux2014_aarch64 --python-version 3.11 --only-binary=:all: \
    "torch==$2" -r "$root/opt/requirements.txt"
  touch "$root/opt/$2.stamp"
}

arm64_wheel() {
  rm -rf "$3"
  CMAKE_TOOLCHAIN_FILE=$PWD/cmake/arm64.cmake \
    CMAKE_ARGS="-DRECOUP_ARM64_ROOT=$root -DRECOUP_TORCH_ROOT=$root/opt/$2/torch \
      -DPython_INCLUDE_DIR=$root/usr/include/python3.11 -DPython_SOABI=cpython-311-aarch64-linux-gnu" \
    _PYTHON_HOST_PLATFORM=linux-aarch64 SETUPTOOLS_EXT_SUFFIX=.cpython-311-aarch64-linux-gnu.so \
    "$1" -m pip --disable-pip-version-check --quiet wheel --no-build-isolation --no-deps \
    --config-settings build-dir="build/arm64/torch-$2" -w "$3" .
}
