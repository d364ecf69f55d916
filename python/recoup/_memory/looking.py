"""Objects that look at the machine at intervals, on a thread, while a scope is open."""

import functools
import os
import threading
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable

from recoup._patching.outside import WATCHER
from recoup.warning import RecoupWarning


class Looker(ABC):
    """Looks from `begin` to `stop`."""

    pause = 0.05
    """Seconds until the next look."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        """is_open: whether the scope is open."""
        self._is_open = is_open
        self._has_begun = False
        self._has_warned = False
        self._thread: _LookingThread | None = None

    @abstractmethod
    def look(self) -> None:
        """Looks once."""

    @abstractmethod
    def complaint(self, error: Exception) -> str:
        """The warning for a look that failed."""

    def start(self) -> None:
        """Starts the thread, which does nothing until `begin`."""
        self._thread = _LookingThread(self)

    def begin(self) -> None:
        """Looks now, and from now on. The scope is open."""
        self.look()
        self._has_begun = True

    def stop(self) -> None:
        """Ends the thread, and waits for it. Call it again if an interrupt ended the call."""
        if self._thread is not None:
            self._thread.end()

    def look_safely(self) -> None:
        """A look of the thread. An error becomes a warning, once, and later looks may succeed."""
        if not self._has_begun or not self._is_open():
            return
        try:
            self.look()
        except Exception as error:
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(self.complaint(error), RecoupWarning, stacklevel=2)


class _LookingThread:
    """Calls `look_safely` of a looker until `end`, or until the looker is collected."""

    def __init__(self, looker: Looker) -> None:
        over = threading.Event()
        thread = threading.Thread(
            target=_look, args=(weakref.ref(looker), over, looker.pause), name=WATCHER, daemon=True
        )
        thread.start()
        self.end = functools.partial(_end_thread, thread, over, os.getpid())
        # Also when the interpreter ends: then no thread may be in the engine.
        weakref.finalize(looker, self.end)


def _look(reference: weakref.ref[Looker], over: threading.Event, pause: float) -> None:
    while not over.wait(pause):
        looker = reference()
        if looker is None:
            return
        looker.look_safely()
        pause = looker.pause
        del looker  # else the pause would keep the scope alive


def _end_thread(thread: threading.Thread, over: threading.Event, process: int) -> None:
    # In a forked child the thread does not exist, and the lock of `over` may be held.
    if os.getpid() == process:
        over.set()
        if thread is not threading.current_thread():
            thread.join()
