"""Solves the integer program of `offline.optimum` with HiGHS, through SciPy."""

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recoup.offline.optimum_model import Model

# Costs are in thousandths of the program's cost: else cheap ops are within HiGHS's tolerances.
_SCALE = 1000


@dataclasses.dataclass(frozen=True)
class Solution:
    """State of the solver at its end."""

    status: Literal["solved", "infeasible", "stopped"]
    bound: float | None
    """Proven lower bound of the costs; None: unknown."""
    columns: NDArray[np.float64] | None
    """The best solution found; None: none."""


def solve(model: Model, *, whole: bool, seconds: float) -> Solution:
    """Solves the program; whole: False relaxes all columns to fractions, which is quick."""
    # Imported here, so that everything else works without SciPy.
    from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

    rows = model.rows
    shape = (len(rows.upper), len(model.costs))
    matrix = csr_matrix((rows.entry, (rows.row, rows.column)), shape=shape)
    found = milp(
        _SCALE * np.array(model.costs),
        constraints=LinearConstraint(matrix, ub=np.array(rows.upper)),
        bounds=Bounds(np.array(model.lower), np.array(model.upper)),
        integrality=np.array(model.whole) if whole else np.zeros(shape[1]),
        options={"time_limit": seconds},
    )
    # For a relaxed program SciPy gives no bound; the optimum is the bound.
    bound = found.mip_dual_bound if whole else found.fun if found.status == 0 else None
    return Solution(
        {0: "solved", 2: "infeasible"}.get(found.status, "stopped"),  # type: ignore[arg-type]
        None if bound is None else bound / _SCALE,
        found.x,
    )
