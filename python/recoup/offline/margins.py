"""The margin between the least budget that works in simulation and a suggested one."""

import itertools
from dataclasses import dataclass

from recoup._memory.sizes import short_size
from recoup.offline.scaled_trace import setup_end
from recoup.offline.suggestions import Prediction, Predictor
from recoup.offline.trace_steps import Steps
from recoup.offline.traces import Trace

_ALWAYS = 0.05  # costs, and with them evictions, differ from run to run
_UNSEEN = 0.10  # for the program's behavior after the recorded steps


@dataclass(frozen=True)
class Margin:
    """The margin that is added to a budget before it is suggested."""

    fraction: float
    """Size of the margin as a fraction of the budget."""
    whole_run: bool
    """Whether the whole run of the program was recorded."""
    spread: float
    """Excess of the largest step's peak over the smallest step's; 0.1 is 10 %. The first step
    counts with the state that it creates, and not as the smallest. 0 if the whole run was
    recorded."""

    def text(self, subject: str = "Suggested budgets have") -> str:
        """The reason for the margin, as a sentence."""
        if self.whole_run:
            return f"{subject} a margin of {self.fraction:.0%}: costs differ between runs."
        seen = (
            f" The memory of the recorded steps differs by {self.spread:.0%}."
            if self.spread
            else ""
        )
        return (
            f"{subject} a margin of {self.fraction:.0%}, because only the first steps were "
            f"recorded.{seen} Evaluation, checkpoints and larger batches may need more: "
            "--whole-run records them."
        )


def margin_of(trace: Trace, *, whole_run: bool) -> Margin:
    """The margin for a recording.

    whole_run: whether the program ended by itself.
    """
    if whole_run:
        return Margin(_ALWAYS, True, 0.0)
    peaks = _step_peaks(trace)
    spread = max(peaks) / max(min(peaks[1:]), 1) - 1
    return Margin(_ALWAYS + _UNSEEN + spread, False, spread)


def _step_peaks(trace: Trace) -> list[int]:
    """Peak bytes of each of at least two steps, without a budget.

    The first step creates the optimizer's state, so most of it runs without the state. Later steps
    with as large a batch do not. So what it creates, and the second step leaves, counts from its
    beginning. The program's setup, which ends in the first step, does not count.
    """
    steps = Steps(trace)
    ends = [steps.ops_before[end] for end in steps.ends]
    changes = [0] * (len(steps.ops) + 1)
    for buffer in trace.buffers():
        is_state = buffer.lower < ends[0] and buffer.upper > ends[1]
        changes[0 if is_state else buffer.lower] += buffer.size_bytes
        changes[min(buffer.upper, len(changes) - 1)] -= buffer.size_bytes
    live = list(itertools.accumulate(changes))
    starts = [steps.ops_before[setup_end(steps)], *ends]
    return [max(live[start:end], default=0) for start, end in itertools.pairwise(starts)]


def with_margin(predictor: Predictor, found: Prediction, margin: Margin) -> Prediction:
    """The least budget that holds, of `found` plus the margin or larger ones.

    At most the unbudgeted peak plus the margin, where no evictions are needed.
    """
    most = round(predictor.peak_bytes * (1 + margin.fraction))
    fraction = margin.fraction
    while (size := round(found.budget_bytes * (1 + fraction))) < most:
        tried = predictor.predict(short_size(size))
        if tried.holds:
            return tried
        fraction += _ALWAYS  # fragmentation: a larger budget may fail
    return predictor.predict(short_size(most))
