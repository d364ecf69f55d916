"""Makes new processes of tests start in milliseconds: as forks of one that has loaded PyTorch.

PyTorch takes seconds to load. `install` sets `sys.executable`, which tests start, to a small
`python`. It asks a server of this test process to fork, and the fork runs the arguments as a new
Python would. The server is no child of the test process, which may measure its children. If the
new process inherits something else than the server did, such as a variable that PyTorch may read
when it is loaded, a limit or a terminal, or if there are options, a real Python starts.

A test that measures a process by its id, or what Python loads, starts `REAL`.
"""

import atexit
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from warm_context import context

REAL = sys.executable
"""The path of Python itself."""

_HERE = Path(__file__).parent


class _Servers:
    """The server of this process, and the folder of its socket and of the `python`."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules
        self._folder = Path(tempfile.mkdtemp(prefix="warm-python-"))
        self._address = str(self._folder / "socket")
        self.python = self._folder / "python"
        self.python.write_text(
            f"#!{REAL} -IS\n"
            f"import sys\nsys.path.insert(0, {str(_HERE)!r})\n"
            f"import warm_client\nwarm_client.main({REAL!r}, {self._address!r})\n",
            encoding="utf-8",
        )
        self.python.chmod(0o755)
        self._owner = os.getpid()
        self._start()

    def _start(self) -> None:
        # The server has the same terminal, limits and variables as this process.
        self._context = context()
        worker = str(_HERE / "warm_server.py")
        started = subprocess.run(
            [REAL, worker, self._address, str(os.getpid()), str(self.python), *self._modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        self._server = os.pidfd_open(int(started.stdout))

    def update(self) -> None:
        if context() != self._context:
            self._stop()
            self._start()

    def _stop(self) -> None:
        signal.pidfd_send_signal(self._server, signal.SIGKILL)
        select.select([self._server], [], [])
        os.close(self._server)
        os.unlink(self._address)

    def remove(self) -> None:
        if os.getpid() == self._owner:
            self._stop()
            shutil.rmtree(self._folder, ignore_errors=True)


_servers: list[_Servers] = []


def install(*modules: str) -> None:
    """Call it once in a process, before it starts others.

    modules: names of modules that the new processes have loaded, in addition to PyTorch.
    """
    _servers.append(_Servers(modules))
    sys.executable = str(_servers[0].python)
    atexit.register(_servers[0].remove)


def update() -> None:
    """Starts another server if this process has changed what it passes on, such as a variable.

    Until then a new Python starts each time.
    """
    for each in _servers:
        each.update()
