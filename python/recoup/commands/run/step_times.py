"""The times of a run's optimizer steps, for `recoup run --time-plain`."""

import time
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook


class StepTimes:
    """Records the time of each step, from the end of the previous step."""

    def __init__(self) -> None:
        self.steps_ns: list[int] = []
        """Times in nanoseconds, in order."""
        self._begin_ns = time.perf_counter_ns()
        self._hook: Any = register_optimizer_step_post_hook(self._end_step)

    def _end_step(self, *_: object) -> None:
        now_ns = time.perf_counter_ns()
        self.steps_ns.append(now_ns - self._begin_ns)
        self._begin_ns = now_ns

    def stop(self) -> None:
        """Ends the recording."""
        self._hook.remove()
