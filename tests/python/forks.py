"""Processes that are forks of one that has loaded what they need, which takes seconds.

A worker calls `serve`; a test asks a `Server` of it for a run. This file is a worker too: it runs
the code that is its argument, with PyTorch and recoup loaded.
"""

import faulthandler
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

SERVE = "--serve"
HANG_SECONDS = 280


def serve(run: Callable[[list[str]], None]) -> None:
    """Runs each line of arguments in a child, and tells how it ended.

    Nothing may have been computed by now: a fork has no threads but its own.
    """
    gc.collect()
    gc.freeze()  # or each child would write to, and so copy, all there is
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            process = os.fork()
            if process == 0:
                _become(output, errors)
                run(json.loads(line))
                return  # and ends as any process
            _, status = os.waitpid(process, 0)
            row = [os.waitstatus_to_exitcode(status), _text(output), _text(errors)]
            print(json.dumps(row), flush=True)


def _become(output: IO[str], errors: IO[str]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((nothing, output.fileno(), errors.fileno())):
        os.dup2(file, number)
    faulthandler.enable()
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


class Server:
    """The process that forks; for `with`."""

    def __init__(self, worker: Path = Path(__file__), **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(worker), SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What the worker does with these arguments, in a process of its own."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        answer: Any = json.loads(self._process.stdout.readline() or "null")
        assert answer is not None, f"the server has ended: {self._process.wait()}"
        return subprocess.CompletedProcess(arguments, *answer)


def _run_code(words: list[str]) -> None:
    exec(compile(words[0], "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    import recoup  # noqa: F401

    serve(_run_code)
