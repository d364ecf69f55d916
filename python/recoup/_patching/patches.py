"""Attributes of other modules' objects that are replaced for a while and put back exactly."""

import os
import threading
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple

from torch._C._dynamo import eval_frame

from recoup import _C

_SKIP = eval_frame._FrameAction.SKIP
_SKIP_ALL = eval_frame._FrameExecStrategy(_SKIP, _SKIP)
_SKIP_ONE = eval_frame._FrameExecStrategy(_SKIP, eval_frame._FrameAction.DEFAULT)


class Replacement(NamedTuple):
    """An attribute of somebody else's that is replaced."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    """Makes the new attribute from the one that is found there."""
    optional: str = ""
    """Why it may be missing; empty where it may not, which a test checks for every table."""
    since: str = ""
    """The first PyTorch that has it, as in 2.13; empty where all have it."""
    runs_program: bool = False
    """Whether the program's own functions run within it, which Dynamo is to compile as ever."""


_ABSENT = object()


def hide(original: object) -> object:
    """A maker for attributes that shall be missing."""
    return _ABSENT


class Patches:
    """A list of replacements, in force while at least one user wants them.

    What is missing is passed over: nobody can call it, and a program may run without it.
    An interrupt may end `install` and `remove` anywhere: another call goes on where it was.
    """

    def __init__(self, replacements: Sequence[Replacement]) -> None:
        self.replacements = tuple(replacements)
        self._lock = threading.RLock()
        self._users: set[object] = set()
        # Owner, attribute, what was in the owner's own dictionary, what is there now.
        self._undo: list[tuple[Any, str, object, object]] = []
        # What was found the last time, and what was made from it. Most of a small scope's time
        # would be to make the same again.
        self._made: dict[Replacement, tuple[object, object]] = {}
        os.register_at_fork(after_in_child=self._renew_lock)

    def install(self, user: object) -> None:
        """Replaces the attributes, unless they are. `user` has to be given to `remove` later."""
        with self._lock:
            if self._users:
                self._users.add(user)
                return
            try:
                for row in self.replacements:
                    self._replace(row)
                self._users.add(user)
            except BaseException:
                self._users.discard(user)
                self._restore()
                raise

    def remove(self, user: object) -> None:
        """Puts the attributes back when no other user is left; of none it does nothing."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self._restore()

    def forget(self, user: object) -> None:
        """`remove` for a user that is collected: at any time, within our own functions too."""
        if user in self._users:
            self.remove(user)

    def unlock(self) -> None:
        """Behind an interrupt, which may have come where a `with` would not let go of the lock."""
        try:
            while True:
                self._lock.release()
        except RuntimeError:  # it is not this thread's
            pass

    def _replace(self, row: Replacement) -> None:
        # An inherited attribute is shadowed and, later, uncovered again.
        before = vars(row.owner).get(row.name, _ABSENT)
        original = getattr(row.owner, row.name, _ABSENT)
        if original is _ABSENT:
            return
        made = self._made.get(row)
        if made is None or made[0] is not original:
            made = self._made[row] = (original, _hidden_from_dynamo(row, original))
        self._undo.append((row.owner, row.name, before, made[1]))
        _put(row.owner, row.name, made[1])

    def _restore(self) -> None:
        while self._undo:
            owner, name, before, after = self._undo[-1]
            # What somebody else put there since stays: it may wrap ours, which then does nothing.
            if vars(owner).get(name, _ABSENT) is after:
                _put(owner, name, before)
            self._undo.pop()

    def _renew_lock(self) -> None:
        # The child of a fork goes on in the scope, with a copy of everything; a thread that it does
        # not have may have held the lock.
        self._lock = threading.RLock()


def _hidden_from_dynamo(row: Replacement, original: object) -> object:
    """Dynamo takes a function of ours for the one in whose place it is, which it may know.

    And it does not compile ours, nor what that calls, where the program runs between two graphs.
    """
    made = row.make(original)
    if isinstance(made, FunctionType) and callable(original):
        made._torchdynamo_inline = original  # type: ignore[attr-defined]
        skipped = _SKIP_ONE if row.runs_program else _SKIP_ALL
        eval_frame.set_code_exec_strategy(made.__code__, skipped)
    return made


_IMMUTABLE = 1 << 8
"""`Py_TPFLAGS_IMMUTABLETYPE`: of types of C's that take no new attributes from Python."""


def _put(owner: Any, name: str, attribute: object) -> None:
    if isinstance(owner, type) and owner.__flags__ & _IMMUTABLE:
        _C.put_in_type(owner, name, None if attribute is _ABSENT else attribute)
    elif attribute is not _ABSENT:
        setattr(owner, name, attribute)
    elif name in vars(owner):
        delattr(owner, name)
