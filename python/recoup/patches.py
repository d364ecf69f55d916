"""Attributes of other modules' objects that are replaced for a while and put back exactly."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

Replacement = tuple[Any, str, Callable[[Any], Any]]
"""Owner, attribute, and what makes the new attribute from the one that is found there."""

_ABSENT = object()


def hide(original: object) -> object:
    """A maker for attributes that shall be missing."""
    return _ABSENT


class Patches:
    """A list of replacements, in force while at least one user wants them."""

    def __init__(self, replacements: Sequence[Replacement]) -> None:
        self._replacements = replacements
        self._lock = threading.Lock()
        self._users = 0
        # Owner, attribute, what was in the owner's own dictionary, what is there now.
        self._undo: list[tuple[Any, str, object, object]] = []
        os.register_at_fork(after_in_child=self._renew_lock)

    def install(self) -> None:
        """Replaces the attributes, unless another user has. Each call needs one `remove`."""
        with self._lock:
            if self._users == 0:
                try:
                    for owner, name, make in self._replacements:
                        self._replace(owner, name, make)
                except BaseException:
                    self._restore()
                    raise
            self._users += 1

    def remove(self) -> None:
        """Puts the attributes back when this was the last user."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._restore()

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        # An inherited attribute is shadowed and, later, uncovered again.
        before = vars(owner).get(name, _ABSENT)
        if before is _ABSENT and not hasattr(owner, name):
            return
        after = make(getattr(owner, name))
        _put(owner, name, after)
        self._undo.append((owner, name, before, after))

    def _restore(self) -> None:
        while self._undo:
            owner, name, before, after = self._undo.pop()
            # What somebody else put there since stays: it may wrap ours, which then does nothing.
            if vars(owner).get(name, _ABSENT) is after:
                _put(owner, name, before)

    def _renew_lock(self) -> None:
        # The child of a fork goes on in the scope, with a copy of everything; a thread that it does
        # not have may have held the lock.
        self._lock = threading.Lock()


def _put(owner: Any, name: str, attribute: object) -> None:
    if attribute is not _ABSENT:
        setattr(owner, name, attribute)
    elif name in vars(owner):
        delattr(owner, name)
