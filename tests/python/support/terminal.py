"""A terminal that runs programs and keeps all lines that they print, including scrolled ones."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pyte

COLUMNS = 100


@dataclass
class Terminal:
    rows: int
    code: int = 0
    output: bytes = b""
    seen: list[list[str]] = field(default_factory=list)
    """The screen after each piece of output."""
    screen: pyte.HistoryScreen = field(init=False)

    def __post_init__(self) -> None:
        self.screen = pyte.HistoryScreen(COLUMNS, self.rows, history=10_000, ratio=0.5)

    def lines(self) -> list[str]:
        """All lines up to the last that is not empty, including those that scrolled away."""
        gone = [
            "".join(line[x].data for x in range(COLUMNS)).rstrip()
            for line in self.screen.history.top
        ]
        lines = gone + [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def run_in_terminal(
    arguments: list[str | Path],
    cwd: Path,
    rows: int,
    *,
    before: int = 0,
    watch: Callable[[Terminal, subprocess.Popen[bytes]], None] | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Terminal:
    """Runs Python with `arguments` in a terminal of `rows` rows that shows `before` lines already.

    `watch` is called after each read.
    """
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", **environment},
    )
    os.close(child)
    terminal = Terminal(rows)
    stream = pyte.ByteStream(terminal.screen)
    stream.feed(b"".join(b"before %d\r\n" % i for i in range(before)))
    # On Linux, a read error means that the other end of the terminal is closed.
    with contextlib.suppress(OSError):
        while chunk := os.read(parent, 65536):
            size = os.get_terminal_size(parent)
            if size.lines != terminal.screen.lines:
                terminal.screen.resize(size.lines, size.columns)
            stream.feed(chunk)
            terminal.output += chunk
            terminal.seen.append([line.rstrip() for line in terminal.screen.display])
            if watch is not None:
                watch(terminal, process)
    os.close(parent)
    terminal.code = process.wait(timeout=60)
    return terminal
