"""Loads the C++ core: PyTorch first, which it is linked to.

No module imports this one: the package does, when `recoup._C` is asked for the first time.
"""

import torch  # noqa: F401 (before the core)

import recoup.torch_version  # noqa: F401 (it checks PyTorch, and loads the core)
from recoup import _C
from recoup.errors import OutOfBudgetError

_C.set_out_of_budget_error(OutOfBudgetError)
