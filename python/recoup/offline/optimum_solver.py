"""HiGHS, through SciPy, on the integer program of `offline.optimum`."""

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recoup.offline.optimum_model import Model

# Costs are in thousandths of the program's: those of cheap ops are within HiGHS's tolerances else.
_SCALE = 1000


@dataclasses.dataclass(frozen=True)
class Solution:
    """What the solver knows when it ends."""

    status: Literal["solved", "infeasible", "stopped"]
    bound: float | None
    """Proved: the costs are not below."""
    columns: NDArray[np.float64] | None
    """The best that was found."""


def solve(model: Model, *, whole: bool, seconds: float) -> Solution:
    """whole: False lets all columns be fractions, which is quick."""
    # Here, so that all else works without SciPy.
    from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

    rows = model.rows
    shape = (len(rows.upper), len(model.costs))
    matrix = csr_matrix((rows.entry, (rows.row, rows.column)), shape=shape)
    found = milp(
        _SCALE * np.array(model.costs),
        constraints=LinearConstraint(matrix, ub=np.array(rows.upper)),
        bounds=Bounds(np.array(model.lower), np.ones(shape[1])),
        integrality=np.array(model.whole) if whole else np.zeros(shape[1]),
        options={"time_limit": seconds},
    )
    # Without whole columns, SciPy gives no bound; what is solved is its own.
    bound = found.mip_dual_bound if whole else found.fun if found.status == 0 else None
    return Solution(
        {0: "solved", 2: "infeasible"}.get(found.status, "stopped"),  # type: ignore[arg-type]
        None if bound is None else bound / _SCALE,
        found.x,
    )
