"""The `python` of warm_python.py: runs its arguments in a fork of the server, or in a new Python.

It is started with -I -S, and loads only modules that load in milliseconds.
"""

import json
import os
import select
import signal
import socket
import stat
import sys
from typing import NoReturn

from warm_context import context

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(python: str, address: str) -> NoReturn:
    connection = _ask(address) if _can_fork() else None
    if connection is None:
        os.execv(python, [python, *sys.argv[1:]])
    for each in FORWARDED:
        signal.signal(each, lambda number, _: connection.sendall(bytes([number])))
    connection.sendall(b"\n")
    status = int(_line(connection) or str(1 << 8))  # no line: the server was killed
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _can_fork() -> bool:
    """Whether the arguments are a module, code or a script, and only files 0 to 2 are inherited.

    A terminal's process needs a session of its own.
    """
    words = sys.argv[1:]
    if len(words) < 2 or words[0] not in ("-m", "-c"):
        is_script = bool(words) and words[0].endswith(".py") and os.path.isfile(words[0])
        if not is_script:
            return False
    if any(int(name) > 3 for name in os.listdir("/proc/self/fd")):  # 3: the list itself
        return False
    try:
        return not any(stat.S_ISCHR(os.fstat(i).st_mode) and os.isatty(i) for i in (0, 1, 2))
    except OSError:  # one is closed
        return False


def _ask(address: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
        request = [sys.argv[1:], os.getcwd(), dict(os.environ), context()]
        text = json.dumps(request).encode() + b"\n"
        socket.send_fds(connection, [b"\n"], [0, 1, 2])
        connection.sendall(text)
        return connection if _line(connection) == "yes" else None
    except OSError:
        return None


def _line(connection: socket.socket) -> str:
    text = b""
    while not text.endswith(b"\n"):
        select.select([connection], [], [])
        part = connection.recv(1)
        if not part:
            break
        text += part
    return text.decode().strip()
