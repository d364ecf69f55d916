"""The largest batch that fits into a budget: a search over scaled versions of one trace."""

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recoup.offline.margins import Margin, margin_of
from recoup.offline.scaled_trace import ScaledTrace
from recoup.offline.suggestions import Prediction, Predictor
from recoup.offline.traces import Trace

_RESOLUTION = 100  # the result is exact to 1 %, or to 1 if that is more
_MOST_DOUBLINGS = 30
_COMPLETES = 10.0  # ratio of time from which on a run counts as endless, as for suggested budgets


@dataclass(frozen=True)
class BatchTried:
    """A batch size in the budget. The recorded batch is exact, unless inputs are longer; others are
    estimates."""

    batch: int
    unbudgeted_peak_bytes: int
    sample_time_ratio: float | None
    """Time of a sample in the budget over its time in the recorded batch without a budget, with
    inputs of the same length. None: the steady step is not reached."""
    prediction: Prediction
    margin: Margin
    """The margin, as a fraction of the batch."""
    larger_batch: int
    """The batch plus the margin."""
    holds: bool
    """Whether the batch holds, and the larger batch completes, in whatever time."""


@dataclass(frozen=True)
class LargestBatch:
    """Result of a search."""

    recorded_batch: int
    largest: BatchTried
    """The largest batch that holds."""
    smallest_too_large: BatchTried | None
    """The smallest batch tried that does not hold. None: all held."""
    tried: list[BatchTried]
    """All batches, in the order in which they were tried."""


def largest_batch(
    trace: Trace,
    *,
    batch: int,
    budget: str,
    policy: str = "planned",
    spill: str | None = None,
    max_time_ratio: float = 2.0,
    lengths: tuple[int, int] | None = None,
    whole_run: bool = False,
    on_simulation: Callable[[], None] = lambda: None,
) -> LargestBatch:
    """The largest batch that completes in `budget`, to 1 %: by doubling, then by bisection.

    With the margin of its trace, see `margin_of`, a batch completes too. The margin is one of the
    batch and not of the budget: what differs between steps grows with the batch, as a rule, and
    parameters and the optimizer's state do not.
    batch: batch size of the trace, see `ScaledTrace`.
    max_time_ratio: as for `Predictor`. It limits no batch with a margin.
    lengths: the length of the recorded inputs, and the length for which the batch is searched.
    whole_run: whether the program ended by itself.
    on_simulation: called after each simulation.
    Raises ValueError if not even a batch of 1 completes, and as `Predictor` does.
    """
    scaled = ScaledTrace(trace, batch, lengths)
    if lengths is not None:
        trace = scaled.trace(batch)
    made: dict[str, Any] = {"policy": policy, "spill": spill, "on_simulation": on_simulation}
    now = Predictor(trace, max_time_ratio=max_time_ratio, **made)
    tried: list[BatchTried] = []

    def fits(size: int) -> bool:
        sized = trace if size == batch else scaled.trace(size)
        predictor = Predictor(sized, max_time_ratio=max_time_ratio, **made)
        margin = margin_of(sized, whole_run=whole_run)
        larger = math.ceil(size * (1 + margin.fraction))
        one = _try(predictor, size, budget, now.step_ns / batch, margin, larger)
        if one.prediction.holds:
            one = dataclasses.replace(one, holds=completes(larger))
        tried.append(one)
        return one.holds

    @functools.cache
    def completes(size: int) -> bool:
        predictor = Predictor(scaled.trace(size), max_time_ratio=_COMPLETES, **made)
        return predictor.predict(budget).holds

    low, high = 0, batch
    while fits(high):
        low, high = high, 2 * high
        if high > batch << _MOST_DOUBLINGS:
            break
    while high - low > max(1, low // _RESOLUTION):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if low == 0:
        last = tried[-1]
        reason = last.prediction.reason or "out of budget if costs differ from the recorded ones"
        if last.prediction.holds:
            reason = f"the margin is a batch of {last.larger_batch}, which does not fit"
        raise ValueError(f"even a batch of 1 does not fit in {budget}: {reason}")
    by_size = {one.batch: one for one in tried}
    return LargestBatch(batch, by_size[low], by_size.get(high), tried)


def _try(
    predictor: Predictor, size: int, budget: str, sample_ns: float, margin: Margin, larger: int
) -> BatchTried:
    prediction = predictor.predict(budget)
    ratio = None
    if prediction.time_ratio is not None:
        ratio = prediction.time_ratio * predictor.step_ns / size / max(sample_ns, 1.0)
    return BatchTried(
        batch=size,
        unbudgeted_peak_bytes=predictor.peak_bytes,
        sample_time_ratio=ratio,
        prediction=prediction,
        margin=margin,
        larger_batch=larger,
        holds=False,
    )
