"""Groups of processes that share a budget."""

import os
import re
from pathlib import Path

ALLOWED = "'node' or text such as 'group:name', with letters, digits, '-', '_' and '.' in the name"
_GROUP = re.compile(r"group:[A-Za-z0-9_.-]{1,64}")


def check_share(share: object) -> None:
    """Raises TypeError or ValueError that says what is allowed."""
    if not isinstance(share, str):
        raise TypeError(f"share must be {ALLOWED}; got {share!r}")
    if share != "node" and not _GROUP.fullmatch(share):
        raise ValueError(f"share must be {ALLOWED}; got {share!r}")


def file_of(share: str) -> str:
    """The file by which processes find each other.

    share: "node" for all processes of the parent of this process, or "group:name" for all processes
        of this user that give the name.
    """
    folder = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp")
    mine = f"recoup-{os.geteuid()}-{_process_namespace()}-"
    if share != "node":
        return str(folder / (mine + share.replace(":", "-")))
    _remove_old(folder, f"{mine}node-")
    parent = os.getppid()
    return str(folder / f"{mine}node-{parent}-{_start_of(parent)}")


def _remove_old(folder: Path, prefix: str) -> None:
    """Removes files of groups whose parent has ended; their last process was killed."""
    for file in folder.glob(f"{prefix}*"):
        parent, _, start = file.name.removeprefix(prefix).partition("-")
        if parent.isdecimal() and _start_of(int(parent)) != start:
            file.unlink(missing_ok=True)


def _process_namespace() -> int:
    """Process ids of different containers differ in meaning, even if they share /dev/shm."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _start_of(process: int) -> str:
    """When it began, in ticks since the machine started: the process id may be used again."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:  # a process outside of this container
        return "0"
    return text.rpartition(")")[2].split()[19]
