"""The progress of the simulations of `recoup suggest`, on stderr."""

import threading
import time
from types import TracebackType

from rich.console import Console
from rich.status import Status

_SECONDS = 5.0
"""Interval of the lines of a stderr that is no terminal, in seconds."""


class Simulations:
    """Shows the number of simulations: on a terminal in its last row, elsewhere as lines."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._console = console
        self._row: Status | None = console.status("simulating") if console.is_terminal else None
        self._lock = threading.Lock()
        self._start_s = self._shown_s = time.monotonic()
        self._count = 0

    def __enter__(self) -> "Simulations":
        if self._row is not None:
            self._row.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._row is not None:
            self._row.stop()

    def count(self) -> None:
        """Counts a simulation that has ended. May be called on any thread."""
        with self._lock:
            self._count += 1
            now_s = time.monotonic()
            passed_s = now_s - self._start_s
            text = f"{self._count} simulations in {passed_s:.0f} s"
            if self._row is not None:
                self._row.update(text)
            elif now_s - self._shown_s >= _SECONDS:
                self._shown_s = now_s
                self._console.print(f"recoup suggest: {text}", highlight=False, soft_wrap=True)
