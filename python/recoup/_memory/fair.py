"""Fair parts of memory that several processes share."""

from collections.abc import Sequence


def fair_parts(total: int, demands: Sequence[int]) -> list[int]:
    """Max-min fair parts: no part exceeds its demand, and the others are equal.

    total: bytes to divide. demands: bytes that each process could use.
    """
    parts = [0] * len(demands)
    left = max(total, 0)
    by_demand = sorted(range(len(demands)), key=demands.__getitem__)
    for before, index in enumerate(by_demand):
        parts[index] = min(demands[index], left // (len(demands) - before))
        left -= parts[index]
    return parts
