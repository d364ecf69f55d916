"""Runs an unmodified PyTorch program inside a hard memory budget, bit for bit the same.

import recoup

with recoup.budget("4GiB") as run:
    train()
print(run.report())
"""

import contextlib
import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch  # before _C, which is linked against it

import recoup.torch_version  # noqa: F401 (before _C too: it may be of another PyTorch)
from recoup import _C, compiled_plan, gpus
from recoup.budgets import Budget
from recoup.decisions import Decision
from recoup.errors import OutOfBudgetError
from recoup.moments import Moment
from recoup.run import Run
from recoup.scope import PRESETS, budget, trace
from recoup.stats import Stats
from recoup.threads import carry

if TYPE_CHECKING:
    from recoup.offline import layout as layout
    from recoup.offline.dtr_log import read_dtr_log
    from recoup.offline.traces import Simulation, Trace, TracedOp

__all__ = [
    "PRESETS",
    "Budget",
    "Decision",
    "Moment",
    "OutOfBudgetError",
    "Policy",
    "Run",
    "Simulation",
    "Stats",
    "Trace",
    "TracedOp",
    "allow_replay",
    "budget",
    "carry",
    "cmake_prefix_path",
    "evict",
    "is_resident",
    "materialize",
    "pin",
    "policies",
    "read_dtr_log",
    "trace",
]
__version__ = _C.__version__
# Beside what was built, which in an editable installation is apart from the sources.
cmake_prefix_path = str(Path(_C.__file__).parent / "lib" / "cmake" / "recoup")
"""Where CMake finds the package for C++: an entry of CMAKE_PREFIX_PATH, or recoup_DIR."""

_C.set_out_of_budget_error(OutOfBudgetError)
gpus.install_at_import()

# What looks at traces is loaded when it is first asked for: a program in a budget never asks.
_OFFLINE = {
    "Simulation": "traces",
    "Trace": "traces",
    "TracedOp": "traces",
    "layout": "layout",
    "read_dtr_log": "dtr_log",
}

if not TYPE_CHECKING:  # it would give a type to every name that is misspelt

    def __getattr__(name: str) -> Any:
        if name not in _OFFLINE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"recoup.offline.{_OFFLINE[name]}")
        found = module if name == _OFFLINE[name] else getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_OFFLINE})


@dataclasses.dataclass(frozen=True)
class Policy:
    """A row of `policies()`."""

    name: str
    """What `budget(policy=...)` takes."""
    summary: str
    """One line."""
    small_filter: bool
    """Whether its paper leaves out values below 1 % of the mean size."""
    sampling: bool
    """Whether its paper scores only about 2 sqrt(N) candidates."""
    schedule: bool
    """Whether it makes a schedule of one training step, which drives the next ones."""
    kinetic: bool
    """Whether `budget(kinetic=True)` takes it: its score falls with staleness or its root."""
    foresees: bool
    """Whether it plans the evictions of steps that repeat."""


def policies(*, simulated: bool = False) -> list[Policy]:
    """The policies that a run may have, in the order of all tables.

    simulated: those too that know the future and can only be simulated.
    """
    return [Policy(*row[:5], *row[6:]) for row in _C.policies() if simulated or not row[5]]


def evict(tensor: torch.Tensor) -> bool:
    """Drops the bytes of the tensor's storage if they can be recomputed.

    Returns whether the storage is evicted now. The program cannot tell: the next op that needs the
    bytes gets them back.
    """
    return _C.evict(tensor)


def is_resident(tensor: torch.Tensor) -> bool:
    """Whether the tensor's storage has its bytes; true for tensors that no scope manages."""
    return _C.is_resident(tensor)


def materialize(tensor: torch.Tensor) -> None:
    """Recomputes the tensor's storage if it is evicted. It may be evicted again; see `pin`.

    Raises OutOfBudgetError when it does not fit.
    """
    _C.materialize(tensor)


@contextlib.contextmanager
def pin(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Inside the `with` block the tensor's storage is resident and stays in place.

    Raises OutOfBudgetError when it does not fit.
    """
    held = _C.pin(tensor)
    try:
        yield tensor
    finally:
        held.release()


def allow_replay(name: str) -> None:
    """Says that a custom op, "namespace::op", computes its outputs from its inputs and no more.

    Without it what the op writes is never evicted. Raises ValueError for text of another form.
    """
    namespace, _, op = name.partition("::") if isinstance(name, str) else ("", "", "")
    if not namespace or not op:
        raise ValueError(f"allow_replay takes the name of an op as 'namespace::op'; got {name!r}")
    _C.allow_replay(name)
    compiled_plan.forget_plans()
