"""The probes of `recoup doctor`: each returns one line of text, data, and unsupported features.

A probe may raise any exception: `look` turns it into the finding "unknown".
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
from recoup._reporting.page_data import interception


@dataclass
class Finding:
    """The result of a probe."""

    text: str
    """One line."""
    data: dict[str, Any] = field(default_factory=dict)
    """The same as JSON: sizes in bytes, speeds in bytes per second."""
    unsupported: list[str] = field(default_factory=list)
    """Features that do not work here, each with its consequence, one line per feature."""


Probe = Callable[[], Finding]


def look(probe: Probe) -> Finding:
    """Runs the probe. If it raises, the finding is "unknown" with the reason."""
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
        "ops_intercepted_at": interception(),
    }
    text = (
        f"recoup {data['recoup']} for PyTorch {data['built_for_pytorch']}; running PyTorch "
        f"{data['pytorch']}, Python {data['python']}; ops are "
        f"intercepted at the {data['ops_intercepted_at']}"
    )
    return Finding(text, data)


_ALLOCATORS = {"tcmalloc": r"tcmalloc", "jemalloc": r"jemalloc", "mimalloc": r"mimalloc"}


def allocator() -> Finding:
    """The allocator of memory other than tensors, and of tensors outside scopes."""
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
        raise ValueError(f"unexpected content {text.strip()!r} in {HUGE_PAGES}")
    mode = chosen[1]
    barred = any(line.split() == ["THP_enabled:", "0"] for line in _lines("/proc/self/status"))
    found = Finding(f"transparent, {mode}" + (", disabled for this process" if barred else ""))
    found.data = {"transparent": mode, "barred_for_this_process": barred}
    if mode == "never" or barred:
        found.unsupported.append(
            "transparent huge pages: a pool uses normal pages, and page faults cost 3 to 5 % of "
            "a step"
        )
    return found


def threads() -> Finding:
    data: dict[str, Any] = {
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "pytorch_threads": torch.get_num_threads(),
        "between_ops": torch.get_num_interop_threads(),
        "math_functions_called": len(_C.choose_math_kernels()),
    }
    text = (
        f"{data['cores']} cores, {data['usable_cores']} of them usable here; PyTorch uses "
        f"{data['pytorch_threads']} threads within an op and {data['between_ops']} between ops"
    )
    if data["math_functions_called"]:
        text += (
            f"; {data['math_functions_called']} math functions were called at import, so that "
            "oneMKL chose their kernels before several threads call them"
        )
    return Finding(text, data)


def memory() -> Finding:
    found = machine.look()
    physical, free, most = found.limits[0], found.free, found.most
    limit = f"{format_bytes(most.limit_bytes)} ({most.source})" if most is not physical else "none"
    text = (
        f"{format_bytes(physical.limit_bytes)} physical; {format_bytes(free.free_bytes)} free "
        f"({free.source}); cgroup limit: {limit}"
    )
    data = {
        "physical_bytes": physical.limit_bytes,
        "free_bytes": free.free_bytes,
        "free_source": free.source,
        "limits": [vars(each) for each in found.limits],
        "problems": found.problems,
    }
    missing = [f"a memory limit is unknown: {each}" for each in found.problems]
    for each in found.limits:
        if each.kind == "addresses" and each.limit_bytes < 2 * physical.limit_bytes:
            missing.append(
                f"{each.source} is {format_bytes(each.limit_bytes)}: a scope may fail to reserve "
                f"addresses for {format_bytes(physical.limit_bytes)}; lift `ulimit -v` and "
                "`ulimit -d`"
            )
    return Finding(text, data, missing)


def scopes() -> Finding:
    """Whether a budget works: evicts a value and recomputes it."""
    try:
        with recoup.budget("4MiB", device="cpu") as run:
            made = torch.arange(1024.0).mul(2)
            recoup.evict(made)
            right = made[1000].item() == 2000
            replays = run.stats().replays
    except RuntimeError as error:
        lost = f"CPU budgets: {error}"
        return Finding("CPU budgets do not work", {"work": False}, [lost])
    if not right or replays == 0:
        raise ValueError("an evicted value was not restored: please report it")
    return Finding("CPU budgets work: a value was evicted and recomputed", {"work": True})


def graphics() -> Finding:
    why = gpus.problem()
    if why is not None:
        lost = f"GPU budgets: {why}; GPU tensors are outside every budget"
        return Finding("GPU budgets are unavailable", {"devices": [], "problem": why}, [lost])
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
_BLOCK = 4 << 20  # the engine's unit of copies
_MOST_BLOCKS = 64
_SECONDS = 0.4  # time for writing, and time for reading
_IN_MEMORY = ("tmpfs", "ramfs")


def disk(given: str | None) -> Finding:
    """The disk of directory `given`; None: of the directory that a spill tier uses by default."""
    folder = given or _default_folder()
    if folder is None:
        lost = (
            "a spill tier without --spill-dir: the directories for temporary files are in memory "
            "(tmpfs)"
        )
        return Finding("no directory on a disk", {"directory": None}, [lost])
    kind = _kind_of_system(folder)
    system = os.statvfs(folder)
    free = system.f_bavail * system.f_frsize
    data: dict[str, Any] = {"directory": folder, "system": kind, "free_bytes": free}
    text = f"{folder} ({kind or 'unknown file system'}), {format_bytes(free)} free"
    if kind in _IN_MEMORY:
        lost = (
            f"a spill tier in {folder}: it is in memory (tmpfs), so spilling would save no memory"
        )
        return Finding(text, data, [lost])
    written, read, direct = _speeds(folder)
    data |= {"write_bytes_per_s": written, "read_bytes_per_s": read, "direct": direct}
    text += f", writes {written / 1e9:.2f} GB/s, reads {read / 1e9:.2f} GB/s"
    missing = []
    if not direct:
        missing.append(f"direct I/O in {folder}: a spill tier there goes through the page cache")
    if (why := _io_uring_problem()) is not None:
        data["io_uring"] = why
        missing.append(
            f"io_uring ({why}): the thread of a spill tier waits for each copy before the next"
        )
    return Finding(text, data, missing)


def _default_folder() -> str | None:
    """As `default_directory` in csrc/disk/spill_file.cpp."""
    for folder in (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp"):
        if folder and os.path.exists(folder) and _kind_of_system(folder) not in _IN_MEMORY:
            return folder
    return None


def _kind_of_system(folder: str) -> str | None:
    """The type of the file system, such as ext4; None if it is unknown."""
    device = os.stat(folder).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    for line in _lines("/proc/self/mountinfo"):
        words = line.split()
        if words[2] == name and "-" in words:
            return words[words.index("-") + 1]
    return None


def _speeds(folder: str) -> tuple[float, float, bool]:
    """Bytes per second written and read, and whether direct I/O bypassed the page cache."""
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
    """Bytes per second, and the number of blocks copied in the time."""
    start = time.monotonic()
    done = count = 0
    for index in blocks:
        done += copy(index * _BLOCK)
        count += 1
        if time.monotonic() - start > _SECONDS:
            break
    return done / max(time.monotonic() - start, 1e-9), count


def _io_uring_problem() -> str | None:
    """Why io_uring is unavailable; None if it works: its set-up then fails only with EFAULT."""
    set_up = 425  # on all architectures
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall(ctypes.c_long(set_up), ctypes.c_long(1), None)
    error = ctypes.get_errno()
    return None if error == errno.EFAULT else os.strerror(error)


def _lines(path: str) -> list[str]:
    return Path(path).read_text(errors="replace").splitlines()
