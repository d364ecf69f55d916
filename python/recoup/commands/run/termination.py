"""The end of a program in `recoup run` at SIGTERM."""

import functools
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from recoup.commands.own_lines import OwnLines
from recoup.commands.programs import Terminated, shell_code


class Termination:
    """SIGTERM raises Terminated in the program, so that the summary and the files are written.

    A handler of the program replaces this one. Frameworks set theirs only if there is none: so
    `signal.getsignal` and `signal.signal` do not show this handler to the program, and it returns
    when the program restores the default. A SIGTERM that is ignored stays ignored. A second SIGTERM
    ends the process at once, and so does the first one in a forked child.
    """

    def __init__(self, own: OwnLines, *, quiet: bool) -> None:
        self._own = own
        self._quiet = quiet
        self._process = os.getpid()
        self._handler = self._arrive
        self._set: Callable[..., Any] = signal.signal
        self._get: Callable[..., Any] = signal.getsignal
        self._is_over = False
        self._masks: dict[int, set[Any]] = {}  # of threads that fork
        self.has_arrived = False
        """Whether SIGTERM has arrived and the program had no handler."""

    def install(self) -> None:
        """Sets the handler, if SIGTERM has its default effect and this is the main thread."""
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        self._set(signal.SIGTERM, self._handler)

        @functools.wraps(signal.signal)
        def set_and_hide(signalnum: Any, handler: Any) -> Any:
            is_ours = os.getpid() == self._process and signalnum == signal.SIGTERM
            if is_ours and handler == signal.SIG_DFL:
                handler = self._handler
            return self._hidden(self._set(signalnum, handler))

        @functools.wraps(signal.getsignal)
        def get_and_hide(signalnum: Any) -> Any:
            return self._hidden(self._get(signalnum))

        signal.signal, signal.getsignal = set_and_hide, get_and_hide
        os.register_at_fork(
            before=self._block, after_in_parent=self._unblock, after_in_child=self._begin_child
        )

    def program_ended(self) -> None:
        """From now on SIGTERM waits until the files are written."""
        self._is_over = True

    def end_process(self) -> None:
        """Ends the process by SIGTERM, as it would have ended without this handler."""
        self._restore()
        os.kill(os.getpid(), signal.SIGTERM)

    def _arrive(self, *_: object) -> None:
        if self.has_arrived:
            self.end_process()
        self.has_arrived = True
        if not self._quiet:
            self._own.say("recoup run: SIGTERM ends the program; a second one ends it at once")
        if not self._is_over:
            raise Terminated(shell_code(-signal.SIGTERM))

    # Python forgets a signal for which a child still had the handler. So SIGTERM waits until the
    # child has the default again.
    def _block(self) -> None:
        self._masks[threading.get_ident()] = signal.pthread_sigmask(
            signal.SIG_BLOCK, [signal.SIGTERM]
        )

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.pop(threading.get_ident()))

    def _begin_child(self) -> None:
        self._restore()
        self._unblock()

    def _restore(self) -> None:
        if self._get(signal.SIGTERM) == self._handler:
            self._set(signal.SIGTERM, signal.SIG_DFL)

    def _hidden(self, handler: Any) -> Any:
        return signal.SIG_DFL if handler == self._handler else handler
