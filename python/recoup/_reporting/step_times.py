"""The times of optimizer steps, and their comparison with steps without recoup."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass


class StepTimes:
    """Records the time of each step, from the end of the previous step."""

    def __init__(self) -> None:
        self.steps_ns: list[int] = []
        """Times in nanoseconds, in order."""
        self._begin_ns = time.perf_counter_ns()

    def end_step(self, *_: object) -> None:
        """Records the step that ends now."""
        now_ns = time.perf_counter_ns()
        self.steps_ns.append(now_ns - self._begin_ns)
        self._begin_ns = now_ns


@dataclass(frozen=True)
class StepRatio:
    """The step of a run compared with a step without recoup."""

    step_ns: int
    """Median time of a step of the run, the first step left out, in nanoseconds."""
    steps: int
    """Number of these steps."""
    plain_step_ns: int
    """Median time of a step without recoup, the first step left out, in nanoseconds."""
    plain_steps: int
    """Number of these steps."""

    @staticmethod
    def of(steps_ns: Sequence[int], plain_steps_ns: Sequence[int]) -> "StepRatio | None":
        """The ratio; None if a program has fewer than two steps."""
        ours, plain = steps_ns[1:], plain_steps_ns[1:]
        if not ours or not plain:
            return None
        medians = (int(statistics.median(each)) for each in (ours, plain))
        step_ns, plain_ns = (max(1, median) for median in medians)
        return StepRatio(step_ns, len(ours), plain_ns, len(plain))

    @property
    def ratio(self) -> float:
        """The time of a step over that without recoup."""
        return self.step_ns / self.plain_step_ns
