"""What a new process inherits from the one that starts it, apart from arguments and files.

A module of the standard library's modules only: the `python` of warm_python.py loads it.
"""

import os
import resource

# Variables that no module reads before recoup is loaded.
_LATE = ("PYTEST_", "RECOUP_")
_LATE_NAMES = {"_", "COLUMNS", "HOME", "LINES", "OLDPWD", "PWD", "SHLVL", "TMPDIR"}
# Variables that only programs of tests read. With others, a new Python starts, which takes longer.
_OF_PROGRAMS = {
    *("AGAIN", "ARRAY", "DATA", "HALVES", "HOOK", "MORE", "NOISE"),
    *("RATE", "RUN", "SCALE", "SEED", "STEPS", "SWAP", "TWICE"),
}
_STATUS = ("Umask", "Uid", "Gid", "Seccomp", "NoNewPrivs", "SigBlk", "SigIgn", "Cpus_allowed")


def context() -> dict[str, object]:
    """A process that differs in one of these must be started, and cannot be a fork of another."""
    with open("/proc/self/status", encoding="ascii") as file:
        rows = (line.split(":", 1) for line in file)
        found: dict[str, object] = {name: text.strip() for name, text in rows if name in _STATUS}
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        found["cgroup"] = file.read()
    for name in sorted(os.listdir("/proc/self/ns")):
        found[f"ns {name}"] = os.readlink(f"/proc/self/ns/{name}")
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            limits = resource.getrlimit(getattr(resource, name))
            found[name] = list(limits)
    found["session"] = [os.getsid(0), os.getpgid(0), os.nice(0)]
    for name, text in os.environ.items():
        if not name.startswith(_LATE) and name not in _LATE_NAMES | _OF_PROGRAMS:
            found[f"variable {name}"] = text
    return found
