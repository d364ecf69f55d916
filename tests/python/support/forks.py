"""Starts processes as forks of one that has loaded the modules, which takes seconds.

A worker calls `serve`; a test asks a `Server` of that worker for a run. This file is a worker, too:
it runs the code in its argument, with PyTorch and recoup loaded.
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
    """Runs each line of arguments in a child process, and prints how the child ended.

    No op may have run before: a fork does not have the thread pools of its parent.
    """
    gc.collect()
    gc.freeze()  # otherwise each child would write to, and so copy, all objects
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            process = os.fork()
            if process == 0:
                _become(output, errors)
                run(json.loads(line))
                return  # and exits as usual
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
    """The process that forks, as a context manager."""

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
        """Runs the worker with these arguments in a new process."""
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
