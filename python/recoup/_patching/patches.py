"""Temporary replacements of attributes of other modules' objects."""

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
    """An attribute of another module's object, and its replacement."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    """Makes the new attribute from the present one."""
    optional: str = ""
    """Why it may be missing; empty if it must exist, which a test checks for every table."""
    since: str = ""
    """The first PyTorch version that has it, such as 2.13; empty if all have it."""
    runs_program: bool = False
    """Whether it runs functions of the program, which Dynamo must compile as usual."""


_ABSENT = object()


def hide(original: object) -> object:
    """A `make` that removes the attribute."""
    return _ABSENT


class Patches:
    """A list of replacements, in force while at least one user wants them.

    Missing attributes are skipped: no caller can use them, and a program may run without them.
    An interrupt may end `install` and `remove` anywhere; another call completes them.
    """

    def __init__(self, replacements: Sequence[Replacement]) -> None:
        self.replacements = tuple(replacements)
        self._lock = threading.RLock()
        self._users: set[object] = set()
        # Owner, attribute, previous entry of the owner's own dictionary, present entry.
        self._undo: list[tuple[Any, str, object, object]] = []
        # The attribute found last, and its replacement, for reuse: making replacements would take
        # most of a small scope's time.
        self._made: dict[Replacement, tuple[object, object]] = {}
        os.register_at_fork(after_in_child=self._renew_lock)

    def install(self, user: object) -> None:
        """Replaces the attributes unless they are replaced. Pass the same `user` to `remove`."""
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
        """Restores the attributes when the last user is removed; no effect for other objects."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self._restore()

    def forget(self, user: object) -> None:
        """`remove` for a user that has been collected; may run inside methods of this class."""
        if user in self._users:
            self.remove(user)

    def unlock(self) -> None:
        """Releases the lock after an interrupt that prevented a `with` from releasing it."""
        try:
            while True:
                self._lock.release()
        except RuntimeError:  # this thread does not hold it
            pass

    def _replace(self, row: Replacement) -> None:
        # Shadows an inherited attribute, which restoring uncovers again.
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
            # A replacement that other code put there stays: it may call ours, which is then inert.
            if vars(owner).get(name, _ABSENT) is after:
                _put(owner, name, before)
            self._undo.pop()

    def _renew_lock(self) -> None:
        # A forked child continues in the scope with a copy of all state, but a thread that does not
        # exist there may have held the lock.
        self._lock = threading.RLock()


def _hidden_from_dynamo(row: Replacement, original: object) -> object:
    """The replacement, which Dynamo treats like the original function and does not compile.

    Dynamo may have special rules for the original. Nor does it compile functions called by the
    replacement, unless the program's own functions run within it.
    """
    made = row.make(original)
    if isinstance(made, FunctionType) and callable(original):
        made._torchdynamo_inline = original  # type: ignore[attr-defined]
        skipped = _SKIP_ONE if row.runs_program else _SKIP_ALL
        eval_frame.set_code_exec_strategy(made.__code__, skipped)
    return made


_IMMUTABLE = 1 << 8
"""`Py_TPFLAGS_IMMUTABLETYPE`: set for C types that accept no new attributes from Python."""


def _put(owner: Any, name: str, attribute: object) -> None:
    if isinstance(owner, type) and owner.__flags__ & _IMMUTABLE:
        _C.put_in_type(owner, name, None if attribute is _ABSENT else attribute)
    elif attribute is not _ABSENT:
        setattr(owner, name, attribute)
    elif name in vars(owner):
        delattr(owner, name)
