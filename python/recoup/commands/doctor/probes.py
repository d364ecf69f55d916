"""What `recoup doctor` looks at: each probe says one line of text, its data, and what is missing.

A probe may raise whatever its part of the system makes of it: `look` turns that into "unknown".
"""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import recoup
from recoup import _C, gpus
from recoup._build import TORCH_VERSION
from recoup._memory import machine
from recoup._memory.sizes import format_bytes


@dataclass
class Finding:
    """What a probe found."""

    text: str
    """One line."""
    data: dict[str, Any] = field(default_factory=dict)
    """The same for programs: sizes in bytes, speeds in bytes a second."""
    unsupported: list[str] = field(default_factory=list)
    """What does not work here, and its consequence; a line each."""


Probe = Callable[[], Finding]


def look(probe: Probe) -> Finding:
    """What it found; where it failed a finding that says why."""
    try:
        return probe()
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        return Finding(f"unknown: {why}", {"unknown": why})


def versions() -> Finding:
    data = {
        "recoup": recoup.__version__,
        "built_for_pytorch": TORCH_VERSION,
        "pytorch": torch.__version__,
        "python": platform.python_version(),
        "hook": _C.hook,
    }
    text = (
        f"recoup {data['recoup']} for PyTorch {data['built_for_pytorch']}; running PyTorch "
        f"{data['pytorch']}, Python {data['python']}; hook {data['hook']}"
    )
    return Finding(text, data)


_ALLOCATORS = {"tcmalloc": r"tcmalloc", "jemalloc": r"jemalloc", "mimalloc": r"mimalloc"}


def allocator() -> Finding:
    """Of what is no tensor; and of tensors outside of scopes."""
    files = {line.split(None, 5)[-1] for line in _lines("/proc/self/maps") if "/" in line}
    loaded = {
        name: file
        for name, pattern in _ALLOCATORS.items()
        for file in sorted(files)
        if re.search(pattern, Path(file).name)
    }
    settings = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("MALLOC_") or name in ("GLIBC_TUNABLES", "LD_PRELOAD")
    }
    said = ", ".join(f"{name} ({file})" for name, file in loaded.items()) or "the C library's"
    said += "".join(f", {name}={value}" for name, value in settings.items())
    return Finding(said, {"loaded": loaded, "settings": settings})


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def huge_pages() -> Finding:
    text = HUGE_PAGES.read_text()
    chosen = re.search(r"\[(\w+)\]", text)
    if chosen is None:
        raise ValueError(f"the kernel says {text.strip()!r}")
    mode = chosen[1]
    barred = any(line.split() == ["THP_enabled:", "0"] for line in _lines("/proc/self/status"))
    found = Finding(f"transparent, {mode}" + (", switched off for this process" if barred else ""))
    found.data = {"transparent": mode, "barred_for_this_process": barred}
    if mode == "never" or barred:
        found.unsupported.append(
            "transparent huge pages: a pool takes plain pages, and faults cost 3 to 5 % of a step"
        )
    return found


def threads() -> Finding:
    data: dict[str, Any] = {
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "pytorch_threads": torch.get_num_threads(),
        "between_ops": torch.get_num_interop_threads(),
    }
    text = (
        f"{data['cores']} cores, {data['usable_cores']} of them usable here; PyTorch takes "
        f"{data['pytorch_threads']} threads in an op and {data['between_ops']} between ops"
    )
    return Finding(text, data)


def memory() -> Finding:
    found = machine.look()
    physical, free, most = found.limits[0], found.free, found.most
    limit = f"{format_bytes(most.limit_bytes)} by {most.source}" if most is not physical else "none"
    text = (
        f"{format_bytes(physical.limit_bytes)} physical; {format_bytes(free.free_bytes)} free by "
        f"{free.source}; limit of a cgroup: {limit}"
    )
    data = {
        "physical_bytes": physical.limit_bytes,
        "free_bytes": free.free_bytes,
        "free_source": free.source,
        "limits": [vars(each) for each in found.limits],
        "problems": found.problems,
    }
    missing = [f"a limit is unknown: {each}" for each in found.problems]
    for each in found.limits:
        if each.kind == "addresses" and each.limit_bytes < 2 * physical.limit_bytes:
            missing.append(
                f"{each.source} is {format_bytes(each.limit_bytes)}: a scope that takes addresses "
                f"for {format_bytes(physical.limit_bytes)} may not begin; lift `ulimit -v` and `-d`"
            )
    return Finding(text, data, missing)


def scopes() -> Finding:
    """Whether a budget works at all: a value is evicted and computed again."""
    try:
        with recoup.budget("4MiB", device="cpu") as run:
            made = torch.arange(1024.0).mul(2)
            recoup.evict(made)
            right = made[1000].item() == 2000
            replays = run.stats().replays
    except RuntimeError as error:
        lost = f"budgets on the CPU: {error}"
        return Finding("no budgets on the CPU", {"work": False}, [lost])
    if not right or replays == 0:
        raise ValueError("a value that was evicted did not come back: please report it")
    return Finding("on the CPU work: a value was evicted and computed again", {"work": True})


def graphics() -> Finding:
    why = gpus.problem()
    if why is not None:
        lost = f"budgets on GPUs: {why}; tensors on a GPU are in no budget"
        return Finding("no budgets on GPUs", {"devices": [], "problem": why}, [lost])
    rows: list[dict[str, Any]] = [
        {"name": torch.cuda.get_device_name(index), **_C.gpu_memory(index)}
        for index in range(torch.cuda.device_count())
    ]
    text = ", ".join(
        f"cuda:{index} {row['name']}, {format_bytes(row['free_bytes'])} of "
        f"{format_bytes(row['total_bytes'])} free"
        for index, row in enumerate(rows)
    )
    return Finding(f"{text or 'no device'}; {gpus.EXPERIMENTAL}", {"devices": rows})


# ---- the spill tier's disk ----
_BLOCK = 4 << 20  # as the engine copies
_MOST_BLOCKS = 64
_SECONDS = 0.4  # of writing, and of reading
_IN_MEMORY = ("tmpfs", "ramfs")


def disk(given: str | None) -> Finding:
    """Of the directory, or of the one that a tier takes if none is given."""
    folder = given or _default_folder()
    if folder is None:
        lost = "a spill tier without --spill-dir: the directories for temporary files are memory"
        return Finding("no directory on a disk", {"directory": None}, [lost])
    kind = _kind_of_system(folder)
    system = os.statvfs(folder)
    free = system.f_bavail * system.f_frsize
    data: dict[str, Any] = {"directory": folder, "system": kind, "free_bytes": free}
    text = f"{folder} ({kind or 'of an unknown kind'}), {format_bytes(free)} free"
    if kind in _IN_MEMORY:
        lost = f"a spill tier in {folder}: it is memory, so nothing would be saved"
        return Finding(text, data, [lost])
    written, read, direct = _speeds(folder)
    data |= {"write_bytes_per_s": written, "read_bytes_per_s": read, "direct": direct}
    text += f", writes {written / 1e9:.2f} GB/s, reads {read / 1e9:.2f} GB/s"
    missing = []
    if not direct:
        missing.append(f"direct copies in {folder}: a tier there goes through the page cache")
    if (why := _io_uring_problem()) is not None:
        data["io_uring"] = why
        missing.append(f"io_uring ({why}): a tier's thread waits for one copy after the other")
    return Finding(text, data, missing)


def _default_folder() -> str | None:
    """As `default_directory` in csrc/disk/spill_file.cpp."""
    for folder in (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp"):
        if folder and os.path.exists(folder) and _kind_of_system(folder) not in _IN_MEMORY:
            return folder
    return None


def _kind_of_system(folder: str) -> str | None:
    """Of the file system, such as ext4; None where that is not to be seen."""
    device = os.stat(folder).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    for line in _lines("/proc/self/mountinfo"):
        words = line.split()
        if words[2] == name and "-" in words:
            return words[words.index("-") + 1]
    return None


def _speeds(folder: str) -> tuple[float, float, bool]:
    """Bytes a second written to and read from a file; whether they go past the page cache."""
    file, name = tempfile.mkstemp(dir=folder, prefix="recoup-doctor-")
    direct = True
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_RDWR | os.O_DIRECT)
    except OSError:
        direct = False
    finally:
        os.unlink(name)
    try:
        with mmap.mmap(-1, _BLOCK) as buffer:  # aligned to a page
            buffer.write(os.urandom(4096) * (_BLOCK // 4096))
            written, blocks = _rate(lambda at: os.pwrite(file, buffer, at), range(_MOST_BLOCKS))
            read, _ = _rate(lambda at: os.preadv(file, [buffer], at), range(blocks))
    finally:
        os.close(file)
    return written, read, direct


def _rate(copy: Callable[[int], int], blocks: Iterable[int]) -> tuple[float, int]:
    """Bytes a second, and how many blocks there was time for."""
    start = time.monotonic()
    done = count = 0
    for index in blocks:
        done += copy(index * _BLOCK)
        count += 1
        if time.monotonic() - start > _SECONDS:
            break
    return done / max(time.monotonic() - start, 1e-9), count


def _io_uring_problem() -> str | None:
    """What the system says to its set-up with no memory for an answer; None when it looks there."""
    set_up = 425  # on all architectures
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall(ctypes.c_long(set_up), ctypes.c_long(1), None)
    error = ctypes.get_errno()
    return None if error == errno.EFAULT else os.strerror(error)


def _lines(path: str) -> list[str]:
    return Path(path).read_text(errors="replace").splitlines()
