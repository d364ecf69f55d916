"""Partial runs of the program before that of `recoup run`: --budget least, --time-plain."""

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import recoup
from recoup._reporting.files import write_atomically
from recoup.commands.budget_arguments import rule_flags
from recoup.commands.plain_steps import time_plain_steps
from recoup.commands.programs import ending_on_sigterm, run_process, shell_code

SUGGESTED = ("least", "knee")
"""Budgets that a simulation finds."""
_PLAIN_STEPS = 6


def take_suggested_budget(options: argparse.Namespace) -> None:
    """Replaces a budget of SUGGESTED by its size: from an earlier search, or by a search now.

    A search reads the recording of an earlier one with another policy or spill tier. Else it
    records the first steps of the program in another process, whose standard output becomes
    standard error. Ends the process if the search fails, with its exit code.
    """
    which = options.budget
    if which not in SUGGESTED:
        return
    _require_file(options, f"--budget {which}")
    if options.device not in (None, "cpu"):
        options.fail(f"--budget {which} is for budgets of the CPU; got --device {options.device}")
    folder = _folder(options)
    file = folder / f"{_hash([options.policy, options.spill])}.json"
    found = _read(file)
    if found is None:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        found = _search(options, folder / "run.rtrace")
        with contextlib.suppress(OSError):
            write_atomically(file, json.dumps(found))
    options.budget = found[f"suggested_{which}"]["budget"]
    if not options.quiet:
        again = f"; to search again, delete {folder}" if file.exists() else ""
        print(f"recoup run: --budget {which} is {options.budget}{again}", file=sys.stderr)


def time_plain(options: argparse.Namespace) -> list[int]:
    """The times of the program's first steps without recoup, in nanoseconds.

    They run in another process, whose standard output becomes standard error. Ends the process if
    the program fails there, with its exit code.
    """
    _require_file(options, "--time-plain")
    quiet = options.quiet
    with ending_on_sigterm():
        steps_ns, exit_code = time_plain_steps(
            [options.script, *options.args],
            _PLAIN_STEPS,
            is_module=options.is_module,
            stdout=subprocess.DEVNULL if quiet else sys.stderr,
        )
    if steps_ns is None or exit_code != 0:
        print("recoup run: error: the program failed without recoup", file=sys.stderr)
        sys.exit(shell_code(exit_code) or 1)
    return steps_ns


def _require_file(options: argparse.Namespace, flag: str) -> None:
    if options.is_code or options.script == "-":
        options.fail(f"{flag} runs the program twice: it must be a file or a module")


def _search(options: argparse.Namespace, trace: Path) -> dict[str, Any]:
    if trace.exists():
        code, found = _suggest(options, ["--trace", str(trace)])
        if found is not None:
            return found
        trace.unlink(missing_ok=True)  # it is damaged
    program = [*(["-m"] if options.is_module else []), options.script, *options.args]
    with tempfile.TemporaryDirectory(prefix="recoup-") as folder:
        made = Path(folder) / "trace"
        flags = ["--keep-trace", str(made), *rule_flags(options)]
        code, found = _suggest(options, [*flags, *program])
        if found is None:
            sys.exit(code or 1)
        with contextlib.suppress(OSError):
            shutil.move(made, trace)
    return found


def _suggest(
    options: argparse.Namespace, arguments: list[str]
) -> tuple[int, dict[str, Any] | None]:
    """Runs `recoup suggest`; returns its exit code and results, which are None if it failed."""
    with ending_on_sigterm(), tempfile.TemporaryDirectory(prefix="recoup-") as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, "-m", "recoup", "suggest", "--json", str(file)]
        for flag in ("policy", "spill"):
            if (value := getattr(options, flag)) is not None:
                command += [f"--{flag}", value]
        quiet = options.quiet
        code = run_process(
            [*command, *arguments], stdout=subprocess.DEVNULL if quiet else sys.stderr
        )
        return code, _read(file) if code == 0 else None


def _folder(options: argparse.Namespace) -> Path:
    """For a recording and its searches; its name depends on what a recording is known to depend on.

    A search also depends on the policy and the spill tier.
    """
    script = b""
    if not options.is_module and os.path.isfile(options.script):
        script = Path(options.script).read_bytes()
    key = [
        recoup.__version__,
        importlib.metadata.version("torch"),
        os.getcwd(),
        [options.script, *options.args],
        options.is_module,
        rule_flags(options),
        hashlib.sha256(script).hexdigest(),
    ]
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(folder) / "recoup" / "budgets" / _hash(key)


def _hash(key: object) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def _read(file: Path) -> dict[str, Any] | None:
    """The result of an earlier search; None if there is none."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if all(isinstance(found[f"suggested_{each}"]["budget"], str) for each in SUGGESTED):
            return found
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        pass
    return None
