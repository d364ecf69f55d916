"""A thread that looks at something at intervals until the scope that it serves ends."""

import functools
import os
import threading
import weakref
from typing import Protocol

from recoup._patching.outside import WATCHER


class Looker(Protocol):
    """What such a thread calls."""

    pause: float
    """Seconds until the next look."""

    def look_safely(self) -> None:
        """Looks once. Raises no Exception."""
        ...


class LookingThread:
    """Calls `look_safely` of a looker until `end`, or until the looker is collected."""

    def __init__(self, looker: Looker) -> None:
        over = threading.Event()
        thread = threading.Thread(
            target=_look, args=(weakref.ref(looker), over), name=WATCHER, daemon=True
        )
        thread.start()
        self._end = functools.partial(_end_thread, thread, over, os.getpid())
        # Also when the interpreter ends: then no thread may be in the engine.
        weakref.finalize(looker, self._end)

    def end(self) -> None:
        """Ends the thread, and waits for it. Call it again if an interrupt ended the call."""
        self._end()


def _look(reference: weakref.ref[Looker], over: threading.Event) -> None:
    pause = 0.05
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
