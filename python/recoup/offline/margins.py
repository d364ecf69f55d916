"""The margin between the least budget that works in simulation and a suggested one."""

from dataclasses import dataclass

from recoup._memory.sizes import short_size
from recoup.offline.suggestions import Prediction, Predictor
from recoup.offline.traces import Trace

_ALWAYS = 0.05  # costs, and with them evictions, differ from run to run
_UNSEEN = 0.10  # for the program's behavior after the recorded steps


@dataclass(frozen=True)
class Margin:
    """The margin that is added to a budget before it is suggested."""

    share: float
    """Size of the margin as a share of the budget."""
    whole_run: bool
    """Whether the whole run of the program was recorded."""
    spread: float
    """Excess of the largest step's peak over the smallest step's, without the first step; 0.1 is
    10 %. 0 if the whole run was recorded."""

    def text(self) -> str:
        """The reason for the margin, as a sentence."""
        if self.whole_run:
            return (
                f"Suggested budgets have a margin of {self.share:.0%}: costs differ between runs."
            )
        seen = (
            f" The memory of the recorded steps differs by {self.spread:.0%}."
            if self.spread
            else ""
        )
        return (
            f"Suggested budgets have a margin of {self.share:.0%}, because only the first steps "
            f"were recorded.{seen} Evaluation, checkpoints and larger batches may need more: "
            "--whole-run records them."
        )


def margin_of(trace: Trace, *, whole_run: bool) -> Margin:
    """The margin for a recording.

    whole_run: whether the program ended by itself.
    """
    if whole_run:
        return Margin(_ALWAYS, True, 0.0)
    peaks = [trace.step(index).unbudgeted_peak_bytes() for index in range(1, trace.steps())]
    spread = max(peaks) / max(min(peaks), 1) - 1 if peaks else 0.0
    return Margin(_ALWAYS + _UNSEEN + spread, False, spread)


def with_margin(predictor: Predictor, found: Prediction, margin: Margin) -> Prediction:
    """The least budget that holds, of `found` plus the margin or larger ones.

    At most the unbudgeted peak plus the margin, where no evictions are needed.
    """
    most = round(predictor.peak_bytes * (1 + margin.share))
    share = margin.share
    while (size := round(found.budget_bytes * (1 + share))) < most:
        tried = predictor.predict(short_size(size))
        if tried.holds:
            return tried
        share += _ALWAYS  # fragmentation: a larger budget may fail
    return predictor.predict(short_size(most))
