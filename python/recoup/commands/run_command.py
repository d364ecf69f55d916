"""`recoup run`: a script in a budget."""

import argparse
import atexit
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import recoup
from recoup import gpus
from recoup.commands.progress import Progress
from recoup.commands.run_program import find_program, run_as_python
from recoup.errors import OutOfBudgetError
from recoup.files import write_atomically
from recoup.run import Budget, Run, free_bytes

_USAGE_ERROR = 2


def add_run_command(commands: Any) -> None:
    """Adds the command to the parser's subparsers."""
    run = commands.add_parser(
        "run",
        help="run a script as python would, in a budget",
        allow_abbrev=False,
        usage="recoup run --budget SIZE [options] (SCRIPT | -m MODULE) [args ...]",
    )
    run.add_argument(
        "--budget",
        metavar="SIZE",
        help="bytes, or a size such as 2GiB or 500MB; only a recording needs none",
    )
    run.add_argument(
        "--policy",
        default="planned",
        help="what to evict; see `recoup policies` (default: planned)",
    )
    run.add_argument(
        "--device",
        default="cpu",
        metavar="NAME",
        help="whose memory: cpu, or a GPU such as cuda:0 (default: cpu)",
    )
    run.add_argument(
        "--report", type=Path, metavar="FILE", help="write statistics to this file, as JSON"
    )
    run.add_argument(
        "--trace", type=Path, metavar="FILE", help="record what the program does to this file"
    )
    run.add_argument(
        "--spill",
        metavar="SIZE",
        help="a second tier of so many bytes, for what cannot be computed again: on a disk, of a "
        "GPU in memory of the host",
    )
    run.add_argument(
        "--spill-dir",
        metavar="DIR",
        help="where on a disk (default: the system's directory for temporary files)",
    )
    run.add_argument("--progress", action="store_true", help="say on stderr how it goes")
    run.add_argument("--verify", action="store_true", help="check every replay's bits (slow)")
    run.add_argument(
        "-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module"
    )
    run.add_argument("script", metavar="SCRIPT", help="a Python program")
    run.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    run.set_defaults(command=_run, fail=run.error)


def _run(options: argparse.Namespace) -> int:
    if options.budget is None and options.trace is None:
        options.fail("the following arguments are required: --budget")
    if options.spill_dir is not None and options.spill is None:
        options.fail("--spill-dir is of a second tier: --spill SIZE")
    try:
        device = gpus.parse_device(options.device)
        budget = recoup.budget(
            free_bytes(device) if options.budget is None else options.budget,
            device=device,
            policy=options.policy,
            verify=options.verify,
            spill=options.spill,
            spill_dir=options.spill_dir,
            trace=options.trace,
        )
    except (RuntimeError, ValueError) as error:
        options.fail(str(error))
    for file, what in ((options.report, "report"), (options.trace, "trace")):
        if file is not None and not file.absolute().parent.is_dir():
            options.fail(f"no such directory for the {what}: {file.absolute().parent}")
    try:
        program = find_program(options)
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"recoup run: can't open file {error.filename!r}: {reason}", file=sys.stderr)
        return _USAGE_ERROR

    job = _Job(budget, options)
    # First, so that it comes last: the program's own exit handlers still run inside the budget.
    atexit.register(job.end)
    try:
        job.start()
    except (RuntimeError, ValueError) as error:  # a GPU has not so much
        options.fail(str(error))
    run_as_python(program)
    return 0


class _Job:
    """The scope around a program, its progress line and its report."""

    def __init__(self, budget: Budget, options: argparse.Namespace) -> None:
        self._budget = budget
        self._options = options
        self._process = os.getpid()
        self._start_ns = time.monotonic_ns()
        self._run: Run | None = None
        self._progress: Progress | None = None

    def start(self) -> None:
        self._run = self._budget.__enter__()
        if self._options.progress:
            self._progress = Progress(self._run.stats)
            self._progress.start()

    def end(self) -> None:
        # A child that was forked has copies of our exit handlers.
        if self._run is None or os.getpid() != self._process:
            return
        if self._progress is not None:
            self._progress.stop()
        # The program is over: what is not there, or does not fit, is wanted by nobody.
        try:
            if self._options.spill is not None:
                self._run._abandon()
            else:
                try:
                    self._budget.__exit__(None, None, None)
                except OutOfBudgetError:
                    self._run._abandon()
        except OSError as error:
            print(f"recoup run: cannot write the trace: {error}", file=sys.stderr)
        if self._options.report is not None:
            try:
                write_atomically(self._options.report, self._report_json(self._run))
            except OSError as error:
                print(f"recoup run: cannot write the report: {error}", file=sys.stderr)

    def _report_json(self, run: Run) -> str:
        report = {
            "command": [self._options.script, *self._options.args],
            "policy": self._options.policy,
            "wall_ns": time.monotonic_ns() - self._start_ns,
            "stats": run.stats().to_dict(),
            "pinned": run.pinned(),
        }
        return json.dumps(report, indent=2) + "\n"
