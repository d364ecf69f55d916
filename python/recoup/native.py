"""Loads the C++ core, after PyTorch, to which it is linked.

No module imports this one: the package does, when `recoup._C` is first accessed.
"""

import torch  # noqa: F401 (before the core)

import recoup.torch_version  # noqa: F401 (checks PyTorch's version, and loads the core)
from recoup import _C
from recoup.errors import OutOfBudgetError

_C.set_out_of_budget_error(OutOfBudgetError)
_C.choose_math_kernels()  # before the program computes anything
