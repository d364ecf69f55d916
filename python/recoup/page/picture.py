"""A still SVG picture of memory over a step, for notebooks and for pages without scripts."""

import numpy as np
from numpy.typing import NDArray

from recoup._memory.sizes import format_bytes
from recoup._reporting.report import format_ns
from recoup.page.palette import KINDS
from recoup.page.steps import Counts, Step
from recoup.page.summary import swatch
from recoup.page.texts import escape

_COLUMNS = 240
_WIDTH, _HEIGHT = 720, 180


def still_picture(step: Step) -> str:
    """Bytes by kind in 240 columns, each at its moment with the most bytes."""
    stacks = sample(step, _COLUMNS)
    charged = column_highest(step.charged, step.length_ns, _COLUMNS)
    budgets = column_highest(step.budgets, step.length_ns, _COLUMNS)
    top = max(stacks.sum(axis=1).max(initial=0), charged.max(initial=0), 1)
    # A budget far above the bytes in use would flatten the picture.
    shows_budget = 0 < budgets.max(initial=0) <= 3 * top
    top = 1.04 * max(top, budgets.max(initial=0) if shows_budget else 0)
    parts = []
    lower = np.zeros(_COLUMNS)
    for kind, sizes in zip(KINDS, stacks.T, strict=True):
        if sizes.any():
            upper = lower + sizes
            points = _outline(_HEIGHT * (1 - lower / top), _HEIGHT * (1 - upper / top))
            parts.append(f'<path d="{points}" fill="{KINDS[kind]}"><title>{kind}</title></path>')
            lower = upper
    if step.charged.size:
        line = _steps(_HEIGHT * (1 - charged / top))
        parts.append(f'<path d="M{line}" fill="none" stroke="currentColor"/>')
    if shows_budget:
        line = _steps(_HEIGHT * (1 - budgets / top))
        parts.append(f'<path d="M{line}" fill="none" stroke="#d55e00" stroke-dasharray="6 4"/>')
    label = f"Memory over a step of {format_ns(step.length_ns)}"
    keys = "".join(
        f"<li>{swatch(KINDS[kind])}{kind}</li>"
        for kind, largest in zip(KINDS, stacks.max(axis=0), strict=True)
        if largest
    )
    return (
        f'<svg class="still" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(label)}">{"".join(parts)}</svg><ul class="keys">{keys}'
        f"<li>{_budget_text(step, shows_budget)}</li><li>line: all charged "
        f"memory</li><li>{format_ns(step.length_ns)} from left to right</li></ul>"
    )


def _budget_text(step: Step, shown: bool) -> str:
    if not step.budget_bytes:
        return "no budget"
    text = format_bytes(step.budget_bytes)
    return f"dashes: the budget, {text}" if shown else f"the budget, {text}, is above the chart"


def sample(step: Step, columns: int) -> NDArray[np.float64]:
    """Bytes of each kind (of palette.KINDS) in each column, at its moment with the most bytes."""
    stacks = np.zeros((columns, len(KINDS)))
    if not step.spans.size:
        return stacks
    order = {kind: index for index, kind in enumerate(KINDS)}
    kind_of = np.array([order[group["kind"]] for group in step.groups])
    begin, end, size, group = step.spans.T
    times = np.concatenate([begin, end])
    sizes = np.concatenate([size, -size])
    kinds = np.tile(kind_of[group], 2)
    by_time = np.argsort(times, kind="stable")
    times, sizes, kinds = times[by_time], sizes[by_time], kinds[by_time]
    # Keep the state after all changes of one instant.
    last = np.append(times[1:] != times[:-1], True)
    instants, totals = times[last], np.cumsum(sizes)[last]
    chosen = _highest(instants, totals, step.length_ns, columns)
    for kind in range(len(KINDS)):
        held = np.append(np.cumsum(np.where(kinds == kind, sizes, 0))[last], 0)
        stacks[:, kind] = held[chosen]
    return stacks


def column_highest(line: Counts, length_ns: int, columns: int) -> NDArray[np.float64]:
    """Maximum bytes of a line such as `Step.charged` in each column; 0 before its first point."""
    if not line.size:
        return np.zeros(columns)
    times, sizes = line.T
    chosen = _highest(times, sizes, length_ns, columns)
    highest: NDArray[np.float64] = np.append(sizes, 0)[chosen].astype(float)
    return highest


def _highest(times: Counts, sizes: Counts, length_ns: int, columns: int) -> NDArray[np.intp]:
    """For each column the index of the largest size in it; -1 before the first size."""
    edges = np.linspace(0, length_ns, columns + 1)
    first = np.searchsorted(times, edges[:-1], side="right") - 1
    after = np.searchsorted(times, edges[1:], side="left")
    chosen = np.empty(columns, np.intp)
    for column, (low, high) in enumerate(zip(first, after, strict=True)):
        inside = sizes[max(low, 0) : high]
        found = max(low, 0) + int(inside.argmax()) if inside.size else low
        # Before the first size `found` is -1, the index of an appended 0.
        chosen[column] = found
    return chosen


def _outline(low: NDArray[np.float64], high: NDArray[np.float64]) -> str:
    return f"M{_steps(high)}L{_steps(low, backwards=True)}Z"


def _steps(heights: NDArray[np.float64], *, backwards: bool = False) -> str:
    width = _WIDTH / len(heights)
    points = [
        f"{x * width:.0f} {y:.1f}" for index, y in enumerate(heights) for x in (index, index + 1)
    ]
    return "L".join(reversed(points) if backwards else points)
