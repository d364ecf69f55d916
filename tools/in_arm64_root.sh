#!/bin/sh
# Runs pytest in a Debian for arm64, with the project at /recoup. `unshare --mount` must start it, so that the
# mounts end with it.
#
#     tools/in_arm64_root.sh ROOT SITE [argument of pytest]...
#
# SITE is the folder with the Python packages, as the Debian sees it.
set -eu
root=$1
site=$2
shift 2
mkdir -p "$root/recoup"
for folder in proc sys dev; do
  mount --rbind "/$folder" "$root/$folder"
done
mount --rbind . "$root/recoup"
# Hides what was built for this machine. /var/tmp remains on a disk: O_DIRECT needs one.
for folder in tmp dev/shm recoup/build recoup/.venv; do
  [ ! -d "$root/$folder" ] || mount -t tmpfs none "$root/$folder"
done
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TMPDIR=/var/tmp LANG=C.UTF-8 OMP_NUM_THREADS=1 \
  RECOUP_TEST_PATIENCE=10 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$site" RECOUP_FUZZ_SEEDS="${RECOUP_FUZZ_SEEDS:-}" \
  chroot "$root" sh -c 'cd /recoup && exec python3 -m pytest -p no:cacheprovider "$@"' pytest "$@"
