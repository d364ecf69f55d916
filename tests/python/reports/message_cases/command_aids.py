"""Commands in this process as in one of their own, which would take seconds to load PyTorch."""

import atexit
import math
import os
import sys
from typing import NoReturn

from recoup.commands.cli import main
from recoup.commands.suggest import command as suggest_command
from recoup.commands.suggest import simulations


def run_to_the_end(words: list[str]) -> NoReturn:
    """Raises SystemExit with the exit code, after the exit handlers."""
    atexit._clear()
    suggest_command._run = _run_in_a_fork
    simulations._SECONDS = math.inf  # these lines depend on the machine's speed
    sys.argv = ["recoup", *words]
    last: list[int] = []  # what the last exit handler ends with, when files are not written
    os._exit = last.append  # type: ignore[assignment]
    code: object = 0
    try:
        code = main(words)
    except SystemExit as ending:
        code = ending.code
    except BaseException as error:
        code = _shown(error)
    atexit._run_exitfuncs()
    raise SystemExit(last[0] if last else code)


def _shown(error: BaseException) -> object:
    """What Python prints of an exception that ends it, and the exit code."""
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as ending:
        return ending.code
    return 1


_exit_at_once = os._exit


def _run_in_a_fork(command: list[str]) -> int:
    """What `recoup suggest` runs: `python -m recoup.commands.suggest.record_steps ...`."""
    from recoup.commands.suggest import record_steps

    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os._exit = _exit_at_once
        atexit._clear()
        sys.argv = command[2:]
        code: object = 1
        try:
            code = record_steps.main()
        except SystemExit as ending:
            code = ending.code
        except BaseException as error:
            _shown(error)
        atexit._run_exitfuncs()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
