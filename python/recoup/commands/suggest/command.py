"""`recoup suggest`: predicts the budgets that a program runs in, or its largest batch."""

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from recoup._reporting.files import write_atomically
from recoup.commands.budget_arguments import rule_flags
from recoup.commands.exit_codes import NOT_WRITTEN
from recoup.commands.misplaced import hint
from recoup.commands.plain_steps import time_plain_steps
from recoup.commands.programs import ending_on_sigterm, run_process, shell_code
from recoup.commands.suggest.arguments import LEAST_STEPS
from recoup.commands.suggest.output import print_batch, print_commands, print_suggestions
from recoup.commands.suggest.simulations import Simulations
from recoup.commands.suggest.tier_output import print_tier_use
from recoup.offline.batch_size import LargestBatch, largest_batch
from recoup.offline.margins import margin_of, with_margin
from recoup.offline.overheads import Overheads
from recoup.offline.suggestions import Predictor, suggest
from recoup.offline.tier_use import tier_use
from recoup.offline.trace_steps import Steps, first_steps
from recoup.offline.traces import Trace


@dataclass(frozen=True)
class _Recorded:
    """The data of the predictions."""

    trace: Trace
    other_bytes: int | None = None
    """Resident bytes of the process other than tensors; None if unknown."""
    exit_code: int = 0
    """Exit code of the program, if it ended by itself."""
    notes: tuple[str, ...] = ()
    whole_run: bool = False
    """Whether the recording contains the program to its end."""
    overheads: Overheads | None = None
    """Overheads of recoup on this machine; None: not measured."""
    plain_steps_ns: tuple[int, ...] = ()
    """Time of each step without recoup; empty: not measured."""


def run(options: argparse.Namespace) -> int:
    """Prints the predictions. Returns the exit code: that of the program if it failed."""
    with ending_on_sigterm():
        recorded = _from_file(options) if options.trace is not None else _record(options)
    for note in recorded.notes:
        print(note)
    try:
        if options.batch_size_for is None:
            found = _budgets(options, recorded)
        else:
            found = {"lengths": options.lengths, **asdict(_batch(options, recorded))}
    except ValueError as error:
        options.fail(str(error) if options.trace is None else f"{options.trace}: {error}")
    if options.json is not None:
        result = {
            "program": options.program,
            "trace": None if options.trace is None else str(options.trace),
            "policy": options.policy,
            "spill": options.spill,
            "other_resident_bytes": recorded.other_bytes,
            "plain_steps_ns": recorded.plain_steps_ns,
            "notes": recorded.notes,
            **found,
        }
        try:
            write_atomically(options.json, json.dumps(result, indent=2) + "\n")
        except OSError as error:
            print(f"recoup suggest: cannot write {options.json}: {error}", file=sys.stderr)
            return recorded.exit_code or NOT_WRITTEN
    return recorded.exit_code


# ---- recording ----


def _from_file(options: argparse.Namespace) -> _Recorded:
    try:
        trace = Trace.read(options.trace)
    except (OSError, ValueError) as error:
        options.fail(str(error))
    is_whole = any(kind == "scope_exit" for kind, _, _ in Steps(trace).events)
    return _Recorded(trace, whole_run=is_whole)  # the trace ends with the exit of its scope


def _record(options: argparse.Namespace) -> _Recorded:
    notes = []
    with tempfile.TemporaryDirectory(prefix="recoup-") as folder:
        trace_file, status_file = Path(folder) / "trace", Path(folder) / "status.json"
        command = [sys.executable, "-m", "recoup.commands.suggest.record_steps"]
        steps = 0 if options.whole_run else options.steps
        command += [str(trace_file), str(status_file), str(steps)]
        exit_code = run_process(
            [
                *command,
                *rule_flags(options),
                *(["-m"] if options.is_module else []),
                *options.program,
            ]
        )
        if not status_file.exists():
            _refuse(options, _ended_abruptly(exit_code), exit_code)
        status: dict[str, Any] = json.loads(status_file.read_bytes())
        _require_steps(options, status, exit_code)
        trace = Trace.read(trace_file)
        if options.keep_trace is not None:
            try:
                shutil.copyfile(trace_file, options.keep_trace)
            except OSError as error:
                print(
                    f"recoup suggest: cannot write {options.keep_trace}: {error}", file=sys.stderr
                )
                sys.exit(NOT_WRITTEN)
    if status["is_over"]:
        exit_code = 0
        # A program that caught StepsHaveEnded ran more.
        trace = first_steps(trace, status["marks"])
        if status["was_killed"]:
            notes.append(
                "The program caught the exception that stops it, so it was ended without its "
                "exit handlers."
            )
    else:
        how = f" with exit code {exit_code}" if exit_code else ""
        notes.append(f"The program ended{how} by itself, after {_steps(status)}.")
    return _Recorded(
        trace,
        status["other_bytes"],
        exit_code,
        tuple(notes),
        whole_run=not status["is_over"] and exit_code == 0,
        overheads=Overheads(**status["overheads"]),
        plain_steps_ns=_time_plain(options) if options.time_plain else (),
    )


def _time_plain(options: argparse.Namespace) -> tuple[int, ...]:
    steps_ns, exit_code = time_plain_steps(
        options.program, options.steps, is_module=options.is_module
    )
    if steps_ns is None:
        _refuse(options, _ended_abruptly(exit_code), exit_code)
    return tuple(steps_ns)


def _require_steps(options: argparse.Namespace, status: dict[str, Any], exit_code: int) -> None:
    """Ends the process if too few steps were recorded."""
    if status["error"] is not None:
        _refuse(options, f"the recording failed: {status['error']}", exit_code)
    if status["steps"] >= LEAST_STEPS:
        return
    if status["unknown_option"] in options.own_options:
        print(hint(status["unknown_option"], options.program[0]), file=sys.stderr)
        sys.exit(exit_code)
    what = (
        f"the program ended (exit code {exit_code}) after {_steps(status)} of its optimizer, but "
        f"{LEAST_STEPS} are needed"
    )
    if exit_code == 0:
        what += (
            "; if the program uses no optimizer of torch.optim, record it with recoup.trace(), "
            "call run.mark_step() after each step, and pass --trace FILE"
        )
    _refuse(options, what, exit_code)


def _steps(status: dict[str, Any]) -> str:
    return "1 step" if status["steps"] == 1 else f"{status['steps']} steps"


def _ended_abruptly(exit_code: int) -> str:
    how = f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
    return f"the program ended {how}, without its exit handlers, so nothing was recorded"


def _refuse(options: argparse.Namespace, what: str, exit_code: int) -> NoReturn:
    """Ends the process. A failed program keeps its exit code, a signal as in a shell."""
    if exit_code == 0:
        options.fail(what)
    print(f"recoup suggest: error: {what}", file=sys.stderr)
    sys.exit(shell_code(exit_code))


# ---- predictions ----


def _budgets(options: argparse.Namespace, recorded: _Recorded) -> dict[str, Any]:
    made: dict[str, Any] = {"policy": options.policy, "max_time_ratio": options.max_time_ratio}
    made["overheads"] = recorded.overheads
    made["plain_steps_ns"] = recorded.plain_steps_ns
    with Simulations() as simulations:
        made["on_simulation"] = simulations.count
        predictor = Predictor(recorded.trace, spill=options.spill, **made)
        found = suggest(predictor)
        alone = None if options.spill is None else Predictor(recorded.trace, **made)
        without = None
        if alone is not None:
            without = [alone.predict(one.budget) for one in found.predictions]
        margin = margin_of(recorded.trace, whole_run=recorded.whole_run)
        advised = [
            None if one is None else with_margin(predictor, one, margin)
            for one in (found.knee, found.least)
        ]
        found = replace(found, suggested_knee=advised[0], suggested_least=advised[1])
        distinct = dict.fromkeys(one for one in advised if one is not None)
        uses = [] if alone is None else tier_use(predictor, alone, list(distinct))
    print_suggestions(predictor, found, without, recorded.other_bytes, options)
    print_commands(found, margin, options)
    print_tier_use(uses, options.max_time_ratio)
    if found.least is None:
        reason = (
            found.predictions[0].reason or "out of budget if costs differ from the recorded ones"
        )
        raise ValueError(f"no budget up to the unbudgeted peak is enough: {reason}")
    return {**asdict(found), "tier_use": [asdict(one) for one in uses]}


def _batch(options: argparse.Namespace, recorded: _Recorded) -> LargestBatch:
    with Simulations() as simulations:
        found = largest_batch(
            recorded.trace,
            batch=options.batch,
            budget=options.batch_size_for,
            policy=options.policy,
            spill=options.spill,
            max_time_ratio=options.max_time_ratio,
            lengths=options.lengths,
            whole_run=recorded.whole_run,
            on_simulation=simulations.count,
        )
    print_batch(found, recorded.other_bytes, options)
    return found
