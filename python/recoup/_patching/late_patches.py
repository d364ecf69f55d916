"""Replacements in modules that a program may load later, or never."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from recoup._patching.patches import Patches, Replacement


class LateReplacement(NamedTuple):
    """An attribute that is replaced as soon as its module is loaded."""

    module: str
    owner: str
    """The attribute's owner in the module; empty: the module itself."""
    name: str
    make: Callable[[Any], Any]

    def row(self) -> Replacement:
        """The replacement in the module, which is loaded if it is not yet."""
        module = importlib.import_module(self.module)
        owner = getattr(module, self.owner) if self.owner else module
        return Replacement(owner, self.name, self.make)


class LateSetting(NamedTuple):
    """A setting of a `torch.*.config` module that has another value while a scope is active."""

    module: str
    name: str
    value: object


class LatePatches:
    """`Patches` that do not load the modules of their rows, which may take seconds.

    While it has a user, it watches imports. An interrupt may end its methods anywhere, as for
    `Patches`.
    """

    def __init__(self, rows: Sequence[LateReplacement | LateSetting]) -> None:
        self._rows = tuple(row for row in rows if isinstance(row, LateReplacement))
        self._settings = tuple(row for row in rows if isinstance(row, LateSetting))
        self._before: dict[LateSetting, object] = {}
        self._lock = threading.RLock()
        self._users: set[object] = set()
        self._of_loaded: dict[str, Patches] = {}
        self._finder = _Finder({row.module for row in rows}, self._loaded)

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """All replacements; loads their modules."""
        return tuple(row.row() for row in self._rows)

    def install(self, user: object) -> None:
        with self._lock:
            self._users.add(user)
            if self._finder not in sys.meta_path:
                sys.meta_path.insert(0, self._finder)
            for module in self._finder.names:
                if module in sys.modules:
                    self._install(module, user)

    def remove(self, user: object) -> None:
        with self._lock:
            self._users.discard(user)
            for patches in self._of_loaded.values():
                patches.remove(user)
            if self._users:
                return
            if self._finder in sys.meta_path:
                sys.meta_path.remove(self._finder)
            for row in self._settings:
                self._put_back(row)

    def forget(self, user: object) -> None:
        """`remove` for a user that has been collected."""
        if user in self._users:
            self.remove(user)

    def unlock(self) -> None:
        """Releases the lock after an interrupt, as `Patches.unlock` does."""
        for patches in self._of_loaded.values():
            patches.unlock()
        try:
            while True:
                self._lock.release()
        except RuntimeError:  # this thread does not hold it
            pass

    def _install(self, module: str, user: object) -> None:
        if module not in self._of_loaded:
            rows = [row.row() for row in self._rows if row.module == module]
            self._of_loaded[module] = Patches(rows)
        self._of_loaded[module].install(user)
        for row in self._settings:
            if row.module == module and row not in self._before:
                self._before[row] = getattr(sys.modules[module], row.name)
                setattr(sys.modules[module], row.name, row.value)

    def _put_back(self, row: LateSetting) -> None:
        # A value that was set since then stays.
        if row in self._before and getattr(sys.modules[row.module], row.name) == row.value:
            setattr(sys.modules[row.module], row.name, self._before[row])
        self._before.pop(row, None)

    def _loaded(self, module: str) -> None:
        with self._lock:
            for user in self._users:
                self._install(module, user)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds no module itself; calls `loaded` when a module with one of the names was loaded."""

    def __init__(self, names: set[str], loaded: Callable[[str], None]) -> None:
        self.names = names
        self._loaded = loaded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.names:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._loaded)
                return spec  # type: ignore[no-any-return]
        return None


class _Loader(importlib.abc.Loader):
    """Another loader, which it puts back in place once the module is loaded."""

    def __init__(self, loader: importlib.abc.Loader, loaded: Callable[[str], None]) -> None:
        self._loader = loader
        self._loaded = loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._loaded(module.__name__)
