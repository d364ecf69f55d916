"""Describes the machine: PyTorch, GPU, driver; determined in a process of its own.

After a driver error a process that uses CUDA is unusable, and this script must continue.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
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
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no words"])[-1]
        raise RuntimeError(f"{sys.executable} has no PyTorch that can be imported: {last}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"driver": _driver(), "commit": _commit()}


def _driver() -> str:
    return _first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])


def _commit() -> str:
    return _first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"])


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return (done.stdout.strip().splitlines() or ["unknown"])[0]
