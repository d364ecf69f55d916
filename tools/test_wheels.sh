#!/bin/sh
# Installs wheels of dist/ in a Debian without compilers, as a user does, and trains there; as root.
#
#     tools/test_wheels.sh PYTHON=VERSION...
#
# For each pair, a Python and a version of PyTorch, `make wheels` has made the wheel. Downloads PyTorch.
set -eu
cd "$(dirname "$0")/.."
. tools/torch_venv.sh
. tools/arm64_root.sh  # for arm64_need
root=$PWD/build/clean-debian
libraries=ca-certificates,libbz2-1.0,libexpat1,libffi8,liblzma5,libreadline8,libsqlite3-0,libssl3,zlib1g
if [ "$(id -u)" != 0 ]; then
  echo "recoup: debootstrap and chroot need root: run this as root" >&2
  exit 1
fi
if [ ! -e "$root/.stamp" ]; then
  arm64_need debootstrap=debootstrap
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include="$libraries" bookworm "$root" >"$root.log"
  touch "$root/.stamp"
fi
for pair in "$@"; do
  version=${pair#*=}
  python=$(command -v "${pair%=*}")
  prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
  tag=$(python_tag "$python")
  program=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
  # A namespace of its own: the mounts end with it.
  unshare --mount sh -eu -c '
    root=$1 prefix=$2
    mkdir -p "$root$prefix" "$root/dist" "$root/examples" "$root/root/.config"
    mount --bind "$prefix" "$root$prefix"
    mount --bind dist "$root/dist"
    mount --bind examples "$root/examples"
    for folder in proc sys dev etc/ssl; do
      mount --rbind "/$folder" "$root/$folder"
    done
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    [ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
    shift 2
    exec chroot "$root" sh -eu -s "$@"
  ' sh "$root" "$prefix" "$program" "$version" "$tag" <tools/in_clean_debian.sh
done
