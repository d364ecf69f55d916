"""Describes the machine: PyTorch, GPU, driver; determined in a process of its own.

After a driver error a process that uses CUDA is unusable, and this script must continue.
"""

import re
import sys
from typing import Any

from harness import ROOT, call

_SECONDS = 120
_PROGRAM = """
import json, platform, os, torch
found = {
    "torch": torch.__version__,
    "python": platform.python_version(),
    "cores": len(os.sched_getaffinity(0)),
    "gpu": "none",
    "no_gpu": "",
}
if torch.version.cuda is None:
    found["no_gpu"] = f"PyTorch {torch.__version__} has no CUDA"
elif not torch.cuda.is_available():
    found["no_gpu"] = "PyTorch sees no GPU"
else:
    about = torch.cuda.get_device_properties(0)
    found["gpu"] = f"{about.name}, {about.total_memory / 2**30:.0f} GiB"
    found["cuda"] = torch.version.cuda
print(json.dumps(found))
"""


def look() -> dict[str, Any]:
    """The machine's properties. Raises RuntimeError if this Python cannot import PyTorch."""
    ended = call([sys.executable, "-c", _PROGRAM], _SECONDS)
    if ended.reason:
        raise RuntimeError(f"{sys.executable} has no PyTorch that can be imported: {ended.reason}")
    return ended.result() | {"driver": _driver(), "commit": _commit()}


def remark(torch: str) -> str:
    """What recoup lacks with this version of PyTorch; empty if it is one that recoup requires."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (least,) = re.findall(r'"torch>=(\d+\.\d+)', project)
    if _numbers(torch) >= _numbers(least):
        return ""
    return (
        f"PyTorch {torch} is older than {least}, which recoup requires: recoup does not notice a "
        f"write by another thread or by a C extension. PYTHON selects another Python"
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor version."""
    return tuple(map(int, version.split(".")[:2]))


def _driver() -> str:
    return _first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])


def _commit() -> str:
    return _first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"])


def _first_line(command: list[str]) -> str:
    try:
        ended = call(command, 60)
    except OSError:
        return "unknown"
    return ended.output.partition("\n")[0] if ended.status == 0 else "unknown"
