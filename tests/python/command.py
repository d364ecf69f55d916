"""The command line in a process of its own."""

import subprocess
import sys
from typing import Any


def cli(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recoup", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
