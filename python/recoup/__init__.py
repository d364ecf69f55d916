"""Runs an unmodified PyTorch program inside a hard memory budget, with bitwise equal results.

Example::

    import recoup

    with recoup.budget("4GiB") as run:
        train()
    print(run.report())
"""

# Note [Loaded when asked for]: the core links to PyTorch, and both take seconds to load. The
# command line answers `--help` and reports wrong arguments without them, so in that process each
# name is loaded on first access. Everywhere else names are loaded at import: PyTorch's profiler,
# for one, fails when modules are loaded while it records. The trace tools (`recoup.offline`) are
# always loaded on first access, because a program in a budget does not use them.

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from recoup import _build

if TYPE_CHECKING:
    from recoup import _C as _C
    from recoup._patching.threads import carry
    from recoup._reporting.moments import Moment
    from recoup.budgets import Budget
    from recoup.decisions import Decision
    from recoup.errors import OutOfBudgetError
    from recoup.known_names import Policy, policies
    from recoup.offline import layout as layout
    from recoup.offline.dtr_log import read_dtr_log
    from recoup.offline.traces import Simulation, Trace, TracedOp
    from recoup.options import PRESETS, Options, SimulationOptions
    from recoup.paged import PagedResults
    from recoup.rows import BudgetChange, CopyWait, Holder, KeptGraphs, ModuleWork, PinnedValue
    from recoup.rules import Rules
    from recoup.run import Run
    from recoup.scope import budget, trace
    from recoup.shared import SharedBudget, SharedPart
    from recoup.stats import Stats
    from recoup.tensors import allow_replay, evict, is_resident, materialize, pin
    from recoup.verification import Verification, verify
    from recoup.warning import RecoupWarning

__all__ = [
    "PRESETS",
    "Budget",
    "BudgetChange",
    "CopyWait",
    "Decision",
    "Holder",
    "KeptGraphs",
    "ModuleWork",
    "Moment",
    "Options",
    "OutOfBudgetError",
    "PagedResults",
    "PinnedValue",
    "Policy",
    "RecoupWarning",
    "Rules",
    "Run",
    "SharedBudget",
    "SharedPart",
    "Simulation",
    "SimulationOptions",
    "Stats",
    "Trace",
    "TracedOp",
    "Verification",
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
    "verify",
]
__version__ = _build.VERSION
# Next to the built module, which in an editable installation is apart from the sources.
cmake_prefix_path = os.path.join(os.path.dirname(_build.__file__), "lib", "cmake", "recoup")
"""Directory of the CMake package for C++: an entry for CMAKE_PREFIX_PATH, or recoup_DIR."""

# The module that defines each lazily loaded name.
_HOMES = {
    "PRESETS": "options",
    "Budget": "budgets",
    "BudgetChange": "rows",
    "CopyWait": "rows",
    "Decision": "decisions",
    "Holder": "rows",
    "KeptGraphs": "rows",
    "ModuleWork": "rows",
    "Moment": "_reporting.moments",
    "Options": "options",
    "OutOfBudgetError": "errors",
    "PinnedValue": "rows",
    "Policy": "known_names",
    "RecoupWarning": "warning",
    "Rules": "rules",
    "Run": "run",
    "PagedResults": "paged",
    "SharedBudget": "shared",
    "SharedPart": "shared",
    "Simulation": "offline.traces",
    "SimulationOptions": "options",
    "Stats": "stats",
    "Trace": "offline.traces",
    "TracedOp": "offline.traces",
    "Verification": "verification",
    "allow_replay": "tensors",
    "budget": "scope",
    "carry": "_patching.threads",
    "evict": "tensors",
    "is_resident": "tensors",
    "materialize": "tensors",
    "pin": "tensors",
    "policies": "known_names",
    "read_dtr_log": "offline.dtr_log",
    "trace": "scope",
    "verify": "verification",
}
_MODULES = {"layout": "offline.layout"}

if not TYPE_CHECKING:  # a type checker would accept every misspelt name

    def __getattr__(name: str) -> Any:
        if name == "_C":
            importlib.import_module("recoup.native")
            return globals()[name]
        if name in _HOMES:
            found = getattr(importlib.import_module(f"recoup.{_HOMES[name]}"), name)
        elif not name.startswith("_"):
            found = _module(name)
        else:
            raise _no_attribute(name)
        globals()[name] = found
        return found

    def _module(name: str) -> Any:
        full_name = f"recoup.{_MODULES.get(name, name)}"
        try:
            return importlib.import_module(full_name)
        except ModuleNotFoundError as error:
            if error.name != full_name:
                raise
            raise _no_attribute(name) from None

    def _no_attribute(name: str) -> AttributeError:
        return AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})


def _load() -> None:
    """Loads every name that a program in a budget may use."""
    for name, home in _HOMES.items():
        if not home.startswith("offline."):
            globals()[name] = getattr(importlib.import_module(f"recoup.{home}"), name)


def _is_command_line() -> bool:
    """Whether this process is `recoup` or `python -m recoup`, as far as it can be determined.

    A wrong answer changes only when modules are loaded.
    """
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is not None:
        return os.path.basename(str(script)) == "recoup"
    words = sys.orig_argv
    return "-m" in words and words[words.index("-m") + 1 :][:1] == ["recoup"]


if not _is_command_line():
    _load()
