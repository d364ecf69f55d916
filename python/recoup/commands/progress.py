"""A line on stderr that says how a run goes."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from torch.optim.optimizer import register_optimizer_step_post_hook

from recoup.sizes import format_bytes
from recoup.stats import Stats

_LIVE_SECONDS = 0.5
_PLAIN_SECONDS = 5.0


class Progress:
    """On a terminal one line that renews itself, elsewhere a line every few seconds.

    It shows optimizer steps a second, resident bytes and budget, replays a second, and what was
    written to a second tier and read from it.
    """

    def __init__(self, stats: Callable[[], Stats]) -> None:
        self._stats = stats
        self._console = Console(file=sys.stderr)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="recoup-progress", daemon=True)
        self._hook: Any = None
        self._steps = 0
        self._start_s = time.monotonic()
        # Of the last line: seconds, steps, replays.
        self._last = (self._start_s, 0, 0)

    def start(self) -> None:
        """Starts to count optimizer steps and to print."""
        self._hook = register_optimizer_step_post_hook(self._count_step)
        self._thread.start()

    def stop(self) -> None:
        """Stops, and prints a last line about the whole run."""
        self._stop.set()
        self._thread.join()
        self._hook.remove()
        self._last = (self._start_s, 0, 0)
        self._erase()
        self._print(self._line(), end="\n")

    def _count_step(self, *_: object) -> None:
        self._steps += 1

    def _loop(self) -> None:
        live = self._console.is_terminal
        while not self._stop.wait(_LIVE_SECONDS if live else _PLAIN_SECONDS):
            self._erase()
            # The cursor goes back, so that what the program prints covers the line.
            self._print(self._line(), end="\r" if live else "\n")

    def _erase(self) -> None:
        if self._console.is_terminal:
            self._console.control(Control((ControlType.ERASE_IN_LINE, 2)))

    def _print(self, line: str, end: str) -> None:
        self._console.print(
            line, end=end, markup=False, highlight=False, soft_wrap=end == "\n", no_wrap=True
        )

    def _line(self) -> str:
        stats = self._stats()
        now_s, steps = time.monotonic(), self._steps
        last_s, last_steps, last_replays = self._last
        self._last = (now_s, steps, stats.replays)
        passed_s = max(now_s - last_s, 1e-9)
        return (
            f"recoup: {steps:,} steps, {(steps - last_steps) / passed_s:.2f}/s | "
            f"{format_bytes(stats.resident_bytes)} of {format_bytes(stats.budget_bytes)} | "
            f"{stats.replays:,} replays, {(stats.replays - last_replays) / passed_s:.0f}/s"
            + _copies(stats)
        )


def _copies(stats: Stats) -> str:
    if stats.spills == 0:
        return ""
    written, read = map(format_bytes, (stats.spilled_bytes, stats.fetched_bytes))
    return f" | {written} spilled, {read} fetched"
