"""Rules that forbid evictions and spills by module: the argument `rules` of `recoup.budget`."""

import dataclasses
import fnmatch
import warnings
import weakref
from collections.abc import Iterable, Sequence

import torch

from recoup import _C
from recoup._patching import module_names
from recoup._patching.module_names import MODULES, ModuleName
from recoup.hints import did_you_mean, hint_fields
from recoup.warning import RecoupWarning

# The order of StorageRule in include/recoup/types.h.
_STAYS, _OFF_TIER = range(2)


@hint_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What a run must not evict or spill, by module.

    A module is named as in `named_modules` of the outermost module, which itself has the name of
    its class. A name includes all submodules, and may have the wildcards `*`, `?` and `[0-8]`.
    A module's values are the results of its ops in the forward and the backward pass, and the
    parameters and buffers that it has when it is first called in the scope.
    """

    keep: Sequence[str] = ()
    """Modules whose values are not evicted as long as the program holds them."""
    spill_only: Sequence[str] | None = None
    """The only modules whose values may be written to the spill tier. Values of no module, such as
    optimizer state, may be written too. None: all modules."""

    def __post_init__(self) -> None:
        for field in ("keep", "spill_only"):
            names = getattr(self, field)
            if names is None and field == "spill_only":
                continue
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise TypeError(f"{field} must be a list of names of modules; got {names!r}")
            for name in names:
                if not isinstance(name, str):
                    raise TypeError(f"{field} must be a list of names of modules; got {name!r}")
                if not name:
                    raise ValueError(f"{field} has an empty name: name a module")


class ModuleRules:
    """The rules of one run, applied to its modules when they are first called."""

    def __init__(self, rules: Rules, engine: _C.Engine) -> None:
        self._rules = rules
        self._engine = engine
        self._seen: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._unmatched = {*rules.keep, *(rules.spill_only or ())}

    # ---- while the scope is open; each method is idempotent, and works without the other ----

    def enter(self) -> None:
        """Begins to apply the rules."""
        module_names.listen(self._apply)

    def leave(self) -> None:
        """Ends what `enter` has begun."""
        module_names.stop_listening(self._apply)

    def warn_unmatched(self) -> None:
        """Warns of each name that no called module has."""
        known = sorted({path for number in self._seen for path in _names(MODULES[number])})
        for name in sorted(self._unmatched):
            warnings.warn(
                f"rules: no module that was called is named {name!r}{did_you_mean(name, known)}",
                RecoupWarning,
                stacklevel=5,
            )

    def _apply(self, module: torch.nn.Module, number: int) -> None:
        seen = self._seen.get(number)
        if seen is not None and seen() is module:
            return
        self._seen[number] = weakref.ref(module)
        for rule in self._rules_of(MODULES[number]):
            if seen is None:  # a later module with the number has its rules already
                self._engine.add_rule(number, rule)
            for tensor in module_names.own_tensors(module):
                _C.set_rule(tensor, rule)

    def _rules_of(self, module: ModuleName) -> list[int]:
        rules = []
        if self._matches(module, self._rules.keep):
            rules.append(_STAYS)
        only = self._rules.spill_only
        if only is not None and not self._matches(module, only):
            rules.append(_OFF_TIER)
        return rules

    def _matches(self, module: ModuleName, patterns: Sequence[str]) -> bool:
        names = _names(module)
        found = [
            pattern
            for pattern in patterns
            if any(fnmatch.fnmatchcase(name, pattern) for name in names)
        ]
        self._unmatched.difference_update(found)
        return bool(found)


def _names(module: ModuleName) -> list[str]:
    """The names of a module and of the modules around it, without and with the outermost class."""
    parts = module.path.split(".") if module.path else []
    paths = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return [module.kind, *paths, *(f"{module.kind}.{path}" for path in paths)]
