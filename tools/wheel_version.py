"""The package's version, and the PyTorch requirement of a wheel.

The version is defined in CMakeLists.txt. A wheel is for one minor version of PyTorch, so
`make wheels` sets RECOUP_WHEEL_TORCH, for example to 2.14: then the version has a local part, as in
0.1.0+torch2.14, and the wheel depends on torch==2.14.*. Other builds must not set it: pip rejects
an sdist whose wheel has another version, and public indexes reject local versions.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VARIABLE = "RECOUP_WHEEL_TORCH"


def dynamic_metadata(_settings: Mapping[str, Any], _project: Mapping[str, Any]) -> dict[str, Any]:
    """Called by scikit-build-core for the dynamic metadata."""
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.search(r"project\(recoup VERSION ([0-9.]+)", text)
    if found is None:
        raise RuntimeError("CMakeLists.txt has no version")
    torch = os.environ.get(VARIABLE, "")
    if not torch:
        return {"version": found[1]}
    if not re.fullmatch(r"\d+\.\d+", torch):
        raise RuntimeError(f"{VARIABLE} must be a minor version as 2.14, not {torch!r}")
    return {"version": f"{found[1]}+torch{torch}", "dependencies": [f"torch=={torch}.*"]}
