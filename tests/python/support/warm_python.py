"""Makes new processes of tests start in milliseconds: as forks of one that has loaded PyTorch.

PyTorch takes seconds to load, which was three quarters of the time of all tests. `install` sets
`sys.executable`, which tests start, to a small `python`. It asks a server of this test process to
fork, and the fork runs the arguments as a new Python would. If the new process inherits something
else than the server did, such as a variable that PyTorch may read when it is loaded, a limit or a
terminal, or if there are options, a real Python starts.

A test that measures a process by its id, or what Python loads, starts `REAL`.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REAL = sys.executable
"""The path of Python itself."""

_HERE = Path(__file__).parent


def install() -> None:
    """Call it once in a process, before it starts others."""
    folder = Path(tempfile.mkdtemp(prefix="warm-python-"))
    address = str(folder / "socket")
    python = folder / "python"
    # The server has the same terminal, limits and variables as this process.
    server = subprocess.Popen(
        [REAL, str(_HERE / "warm_server.py"), address, str(os.getpid()), str(python)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n", "the server of processes did not start"
    python.write_text(
        f"#!{REAL} -IS\n"
        f"import sys\nsys.path.insert(0, {str(_HERE)!r})\n"
        f"import warm_client\nwarm_client.main({REAL!r}, {address!r})\n",
        encoding="utf-8",
    )
    python.chmod(0o755)
    sys.executable = str(python)
    atexit.register(_remove, server, folder, os.getpid())


def _remove(server: "subprocess.Popen[str]", folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)
