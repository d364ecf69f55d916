"""`recoup` on a machine with a made-up cgroup: limited_worker.py FOLDER LIMIT_BYTES ARGUMENTS.

No kernel enforces the limit: the parent process must.
"""

import sys
from pathlib import Path

from made_up_machine import version_2, write
from recoup._memory import machine, resident
from recoup.commands.cli import main


def limit(folder: Path, limit_bytes: int) -> None:
    roots = machine.Roots(proc=folder / "proc", cgroup=folder / "cgroup")
    # Other values are those of this machine; the made-up cgroup has no page cache to free.
    write(roots.proc / "meminfo", Path("/proc/meminfo").read_text())
    write(roots.proc / "self/cgroup", "0::/job")
    version_2(roots, "job", limit_bytes, resident.process().taken)
    machine.set_roots(roots)


if __name__ == "__main__":
    limit(Path(sys.argv[1]), int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
