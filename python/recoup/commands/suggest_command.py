"""`recoup suggest`: which budget a program runs in, what it costs, how large a batch may be."""

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

import recoup
from recoup.commands.suggest_output import print_batch, print_suggestions
from recoup.files import check_writable, write_atomically
from recoup.offline.batch_size import LargestBatch, largest_batch
from recoup.offline.suggestions import Predictor, Suggestions, suggest
from recoup.offline.trace_file import Record, first_steps, records_of
from recoup.offline.traces import Trace
from recoup.sizes import parse_bytes

_USAGE_ERROR = 2
_LEAST_STEPS = 2
_BUDGET_RATIO, _BATCH_RATIO = 10.0, 2.0


@dataclass(frozen=True)
class _Recorded:
    """What there is to predict from."""

    records: list[Record]
    beside_bytes: int | None = None
    """What the process had resident beside tensors; None if it is not known."""
    exit_code: int = 0
    """Of the program, if it ended by itself."""
    notes: tuple[str, ...] = ()


def add_suggest_command(commands: Any) -> None:
    """Adds the command to the parser's subparsers."""
    parser = commands.add_parser(
        "suggest",
        help="record some steps of a program, and say which budget to run it in",
        allow_abbrev=False,
        usage="recoup suggest [options] (SCRIPT | -m MODULE) [args ...]\n"
        "       recoup suggest --trace FILE [options]",
        description="Runs the program until some steps have ended, simulates what it did in a "
        "ladder of budgets, and prints what each would cost. Or: how large its batch may be.",
    )
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="end the program behind so many steps of its optimizer (default: 4: the first makes "
        "the optimizer's state, the second and the third are alike, and so the fourth has a plan)",
    )
    parser.add_argument("--policy", default="planned", help="what to evict (default: planned)")
    parser.add_argument(
        "--spill", metavar="SIZE", help="with a second tier of so many bytes, beside none"
    )
    parser.add_argument(
        "--max-time-ratio",
        type=float,
        metavar="RATIO",
        help="what takes more than so many times as long does not work (default: 10; of a batch "
        "size: 2)",
    )
    parser.add_argument(
        "--batch-size-for", metavar="SIZE", help="how large the batch may be in this budget"
    )
    parser.add_argument(
        "--batch", type=int, metavar="B", help="the batch size that the program runs with now"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--keep-trace", type=Path, metavar="FILE", help="keep what was recorded")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="run nothing: take this recording"
    )
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module"
    )
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="SCRIPT [args ...]", help="a Python program"
    )
    parser.set_defaults(command=_suggest, fail=parser.error)


def _suggest(options: argparse.Namespace) -> int:
    _check(options)
    recorded = _from_file(options) if options.trace is not None else _record(options)
    for note in recorded.notes:
        print(note)
    try:
        found: Suggestions | LargestBatch
        if options.batch_size_for is None:
            found = _budgets(options, recorded)
        else:
            found = _batch(options, recorded)
    except ValueError as error:
        options.fail(str(error) if options.trace is None else f"{options.trace}: {error}")
    if options.json is not None:
        result = {
            "program": options.program,
            "trace": None if options.trace is None else str(options.trace),
            "policy": options.policy,
            "spill": options.spill,
            "beside_tensors_bytes": recorded.beside_bytes,
            "notes": recorded.notes,
            **asdict(found),
        }
        try:
            write_atomically(options.json, json.dumps(result, indent=2) + "\n")
        except OSError as error:
            options.fail(f"cannot write {options.json}: {error}")
    return recorded.exit_code


def _check(options: argparse.Namespace) -> None:
    """Refuses, before the program runs, what could not be done behind it."""
    fail = options.fail
    if options.trace is not None:
        for name in ("program", "is_module", "steps", "keep_trace"):
            if vars(options)[name]:
                fail(f"--trace runs nothing: it goes without {_SHOWN[name]}")
    elif not options.program:
        fail("the following arguments are required: SCRIPT, or --trace FILE")
    if options.steps is None:
        options.steps = 4
    if options.steps < _LEAST_STEPS:
        fail(f"--steps must be {_LEAST_STEPS} or more; got {options.steps}")
    for one, other in (("batch_size_for", "batch"), ("batch", "batch_size_for")):
        if vars(options)[one] is not None and vars(options)[other] is None:
            fail(f"{_SHOWN[one]} goes with {_SHOWN[other]}")
    if options.batch is not None and options.batch < 1:
        fail(f"--batch must be 1 or more; got {options.batch}")
    if options.max_time_ratio is None:
        is_batch = options.batch is not None
        options.max_time_ratio = _BATCH_RATIO if is_batch else _BUDGET_RATIO
    if not options.max_time_ratio > 1:  # that of no replay at all
        fail(f"--max-time-ratio must be above 1; got {options.max_time_ratio}")
    try:
        recoup.budget(1, device="cpu", policy=options.policy, spill=options.spill)
        if options.batch_size_for is not None:
            parse_bytes(options.batch_size_for, name="--batch-size-for")
        for file in (options.json, options.keep_trace):
            if file is not None:
                check_writable(file)
    except (OSError, ValueError) as error:
        fail(str(error))


_SHOWN = {
    "program": "a program",
    "is_module": "-m",
    "steps": "--steps",
    "keep_trace": "--keep-trace",
    "batch_size_for": "--batch-size-for SIZE",
    "batch": "--batch B",
}


# ---- what to predict from ----


def _from_file(options: argparse.Namespace) -> _Recorded:
    try:
        trace = Trace.read(options.trace)
    except (OSError, ValueError) as error:
        options.fail(str(error))
    return _Recorded(records_of(trace))


def _record(options: argparse.Namespace) -> _Recorded:
    _check_script(options)
    notes = []
    with tempfile.TemporaryDirectory(prefix="recoup-") as folder:
        trace_file, status_file = Path(folder) / "trace", Path(folder) / "status.json"
        command = [sys.executable, "-m", "recoup.commands.record_steps"]
        command += [str(trace_file), str(status_file), str(options.steps)]
        exit_code = _run([*command, *(["-m"] if options.is_module else []), *options.program])
        if not status_file.exists():
            _refuse(options, _ended_abruptly(exit_code), exit_code)
        status: dict[str, Any] = json.loads(status_file.read_bytes())
        _require_steps(options, status, exit_code)
        records = records_of(Trace.read(trace_file))
        if options.keep_trace is not None:
            try:
                shutil.copyfile(trace_file, options.keep_trace)
            except OSError as error:
                options.fail(f"cannot write {options.keep_trace}: {error}")
    if status["is_over"]:
        exit_code = 0
        records = first_steps(records, status["marks"])  # it may have caught what ended it
        if status["was_killed"]:
            notes.append("It caught what was to end it, so its exit handlers have not run.")
    else:
        how = f" with exit code {exit_code}" if exit_code else ""
        notes.append(f"The program ended{how} by itself, after {_steps(status)}.")
    return _Recorded(records, status["beside_bytes"], exit_code, tuple(notes))


def _check_script(options: argparse.Namespace) -> None:
    path = os.path.abspath(options.program[0])
    if options.is_module or os.path.isdir(path):
        return
    try:
        io.open_code(path).close()
    except OSError as error:
        options.fail(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}")


def _run(command: list[str]) -> int:
    """The exit code. Ctrl-C is the program's, and ends both."""
    sys.stdout.flush()
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            sys.exit(130)  # as of a shell


def _require_steps(options: argparse.Namespace, status: dict[str, Any], exit_code: int) -> None:
    """Ends the process when there is too little to go by."""
    if status["error"] is not None:
        _refuse(options, f"the recording failed: {status['error']}", exit_code)
    if status["steps"] >= _LEAST_STEPS:
        return
    what = (
        f"the program ended (exit code {exit_code}) after {_steps(status)} of an "
        f"optimizer, and {_LEAST_STEPS} are needed"
    )
    if exit_code == 0:
        what += (
            "; where no optimizer of torch.optim steps, record with recoup.trace(), call "
            "run.mark_step(), and pass --trace"
        )
    _refuse(options, what, exit_code)


def _steps(status: dict[str, Any]) -> str:
    return "1 step" if status["steps"] == 1 else f"{status['steps']} steps"


def _ended_abruptly(exit_code: int) -> str:
    how = f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
    return f"the program ended {how}, without its exit handlers, so nothing was recorded"


def _refuse(options: argparse.Namespace, what: str, exit_code: int) -> NoReturn:
    """A program that failed keeps its exit code, of a signal as a shell has it."""
    if exit_code == 0:
        options.fail(what)
    print(f"recoup suggest: error: {what}", file=sys.stderr)
    sys.exit(exit_code if exit_code > 0 else 128 - exit_code)


# ---- predictions ----


def _budgets(options: argparse.Namespace, recorded: _Recorded) -> Suggestions:
    made = {"policy": options.policy, "max_time_ratio": options.max_time_ratio}
    predictor = Predictor(recorded.records, spill=options.spill, **made)
    with _waiting("simulating budgets"):
        found = suggest(predictor)
        without = None
        if options.spill is not None:
            alone = Predictor(recorded.records, **made)
            without = [alone.predict(one.budget) for one in found.predictions]
    print_suggestions(predictor, found, without, recorded.beside_bytes, options)
    if found.least is None:
        reason = found.predictions[0].reason or "it does not complete where costs are misjudged"
        raise ValueError(f"no budget up to the unbudgeted peak is enough: {reason}")
    return found


def _batch(options: argparse.Namespace, recorded: _Recorded) -> LargestBatch:
    with _waiting("simulating batches"):
        found = largest_batch(
            recorded.records,
            batch=options.batch,
            budget=options.batch_size_for,
            policy=options.policy,
            spill=options.spill,
            max_time_ratio=options.max_time_ratio,
        )
    print_batch(found, recorded.beside_bytes, options)
    return found


@contextlib.contextmanager
def _waiting(what: str) -> Iterator[None]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield
