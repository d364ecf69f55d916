"""Runs that alternate, so that a drift of the machine's speed affects all of them equally."""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

_Key = TypeVar("_Key")
_Plain = TypeVar("_Plain")
_Ours = TypeVar("_Ours")


def in_turns(
    rounds: int, ways: Mapping[_Key, Callable[[], _Ours]], *, warm_ups: int = 0
) -> dict[_Key, list[_Ours]]:
    """The results of `rounds` rounds by way; each round calls each way once.

    warm_ups: rounds before these, whose results are not returned.
    """
    found: dict[_Key, list[_Ours]] = {key: [] for key in ways}
    for _ in range(warm_ups + rounds):
        for key, way in ways.items():
            found[key].append(way())
    return {key: results[warm_ups:] for key, results in found.items()}


def pairs(
    rounds: int, plain: Callable[[], _Plain], ours: Callable[[_Plain], _Ours]
) -> Iterator[tuple[_Plain, _Ours]]:
    """The results of `rounds` pairs of calls, each when it is known, after one that warms up.

    ours: gets the result of the plain call before it.
    """
    for at in range(rounds + 1):
        base = plain()
        pair = base, ours(base)
        if at > 0:
            yield pair


@dataclass
class Ratios:
    """Times of pairs, in seconds."""

    plain: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)

    def add(self, plain: float, ours: float) -> None:
        """Adds the times of a pair."""
        self.plain.append(plain)
        self.ours.append(ours)

    @property
    def each(self) -> list[float]:
        """Our time over the plain one, by pair."""
        return [ours / plain for plain, ours in zip(self.plain, self.ours, strict=True)]

    @property
    def median(self) -> float:
        """Median of the pairs' ratios."""
        return statistics.median(self.each)

    def figures(self) -> dict[str, float]:
        """The figures of a table: median times in milliseconds, the ratios and their extremes."""
        return {
            "plain ms": 1e3 * statistics.median(self.plain),
            "its ms": 1e3 * statistics.median(self.ours),
            "over plain": self.median,
            "least": min(self.each),
            "most": max(self.each),
            "pairs": len(self.plain),
        }
