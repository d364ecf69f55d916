"""The command line in a process of its own."""

import subprocess
import sys
from typing import Any


def cli(*args: object, timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recoup", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )
