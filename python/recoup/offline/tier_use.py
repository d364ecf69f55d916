"""What a spill tier would copy in a training, and how fast its disk must be."""

from collections.abc import Sequence
from dataclasses import dataclass

from recoup.offline.graph import TierPrice
from recoup.offline.suggestions import Prediction, Predictor

SPEEDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Speeds of a disk that are tried, each way, in GB/s."""
DEFAULT_SPEED = 1 / TierPrice.write_ns_per_byte
"""The speed that simulations assume, in GB/s."""


@dataclass(frozen=True)
class TimeAtSpeed:
    """The time of a step on a disk of one speed."""

    gb_per_second: float
    time_ratio: float | None
    """As in `Prediction`. None: the step is not reached, or too slow."""


@dataclass(frozen=True)
class TierUse:
    """The use of a spill tier in one budget."""

    budget: str
    written_step_bytes: int
    """Bytes that a step writes to the tier."""
    read_step_bytes: int
    """Bytes that a step reads from it."""
    times: tuple[TimeAtSpeed, ...]
    """The time of a step on each of `SPEEDS`."""
    without: Prediction
    """The prediction for the same budget without a tier."""
    quicker_from: float | None
    """The least of `SPEEDS`, in GB/s, from which on each reaches the steady step, and is quicker
    than recomputation alone if this budget is enough for that. None: not even the largest is."""


def tier_use(
    predictor: Predictor, alone: Predictor, budgets: Sequence[Prediction]
) -> list[TierUse]:
    """The use of the tier in each budget whose steady step is reached.

    predictor: with the tier.
    alone: of the same trace, without one.
    """
    return [
        _use(predictor, one, alone.predict(one.budget))
        for one in budgets
        if one.written_step_bytes is not None
    ]


def _use(predictor: Predictor, found: Prediction, without: Prediction) -> TierUse:
    times = [_time(predictor.with_tier_speed(speed).predict_time(found.budget)) for speed in SPEEDS]
    return TierUse(
        budget=found.budget,
        written_step_bytes=found.written_step_bytes or 0,
        read_step_bytes=found.read_step_bytes or 0,
        times=tuple(map(TimeAtSpeed, SPEEDS, times)),
        without=without,
        quicker_from=_quicker_from(times, _time(without) if without.holds else None),
    )


def _time(one: Prediction) -> float | None:
    return one.time_ratio if one.status == "ok" else None


def _quicker_from(times: Sequence[float | None], without: float | None) -> float | None:
    found = None
    for speed, time in zip(reversed(SPEEDS), reversed(times), strict=True):
        if time is None or (without is not None and time >= without):
            break
        found = speed
    return found
