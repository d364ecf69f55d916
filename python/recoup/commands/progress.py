"""A progress line on stderr."""

import threading
import time
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from recoup._memory.sizes import format_bytes
from recoup.commands.bottom_line import BottomLine
from recoup.commands.own_lines import OwnLines
from recoup.stats import Stats

_LIVE_SECONDS = 0.5
_PLAIN_SECONDS = 5.0


class Progress:
    """Prints progress: in the last row of a terminal, elsewhere as a line every few seconds.

    It shows optimizer steps per second, resident bytes and budget, replays per second, and the
    bytes written to and read from a spill tier.
    """

    def __init__(self, stats: Callable[[], Stats], own: OwnLines) -> None:
        self._stats = stats
        self._own = own
        self._row: BottomLine | None = None
        if (terminal := own.terminal) is not None and BottomLine.fits(terminal):
            self._row = BottomLine(terminal)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="recoup-progress", daemon=True)
        self._hook: Any = None
        self._steps = 0
        self._start_s = time.monotonic()
        # Time in seconds, steps and replays at the previous line.
        self._last = (self._start_s, 0, 0)

    def start(self) -> None:
        """Starts counting optimizer steps and printing."""
        self._hook = register_optimizer_step_post_hook(self._count_step)
        if self._row is not None:
            # Before the program can print or start child processes.
            self._row.show(self._line())
        self._thread.start()

    def stop(self) -> None:
        """Stops, and prints a last line with the averages of the whole run."""
        self._stop.set()
        self._thread.join()
        self._hook.remove()
        self._last = (self._start_s, 0, 0)
        if self._row is not None:
            self._row.close()
        self._own.say_at_the_end(self._line())

    def _count_step(self, *_: object) -> None:
        self._steps += 1

    def _loop(self) -> None:
        say = self._own.say if self._row is None else self._row.show
        while not self._stop.wait(_PLAIN_SECONDS if self._row is None else _LIVE_SECONDS):
            say(self._line())

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
