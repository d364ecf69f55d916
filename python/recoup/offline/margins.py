"""How much larger a suggested budget is than the least one that works in simulation."""

from dataclasses import dataclass

from recoup._memory.sizes import short_size
from recoup.offline.suggestions import Prediction, Predictor
from recoup.offline.traces import Trace

_ALWAYS = 0.05  # costs differ from run to run, and with them what is evicted
_UNSEEN = 0.10  # what a program does after the steps that were recorded


@dataclass(frozen=True)
class Margin:
    """What is added to a budget that works in simulation before it is suggested."""

    share: float
    """Of the budget."""
    whole_run: bool
    """Whether all that the program does was recorded."""
    spread: float
    """How much larger the largest step is than the smallest one, without the first; 0.1: by 10 %.
    0 where all was recorded."""

    def text(self) -> str:
        """Why the margin is what it is, as a sentence."""
        if self.whole_run:
            return (
                f"Suggested budgets have a margin of {self.share:.0%}: costs differ between runs."
            )
        seen = f" Steps that were recorded differ by {self.spread:.0%}." if self.spread else ""
        return (
            f"Suggested budgets have a margin of {self.share:.0%}, because only the first steps "
            f"were recorded.{seen} Evaluation, checkpoints and larger batches may need more: "
            "--whole-run records them."
        )


def margin_of(trace: Trace, *, whole_run: bool) -> Margin:
    """The margin for a recording.

    whole_run: the program ended by itself.
    """
    if whole_run:
        return Margin(_ALWAYS, True, 0.0)
    peaks = [trace.step(index).unbudgeted_peak_bytes() for index in range(1, trace.steps())]
    spread = max(peaks) / max(min(peaks), 1) - 1 if peaks else 0.0
    return Margin(_ALWAYS + _UNSEEN + spread, False, spread)


def with_margin(predictor: Predictor, found: Prediction, margin: Margin) -> Prediction:
    """The least budget from `found` plus the margin on that works too.

    It is at most the unbudgeted peak with the margin, where nothing has to be evicted.
    """
    most = round(predictor.peak_bytes * (1 + margin.share))
    share = margin.share
    while (size := round(found.budget_bytes * (1 + share))) < most:
        tried = predictor.predict(short_size(size))
        if tried.holds:
            return tried
        share += _ALWAYS  # memory in pieces: a larger budget may fail
    return predictor.predict(short_size(most))
