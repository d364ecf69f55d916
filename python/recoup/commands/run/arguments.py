"""The arguments of `recoup run`, and their checks before PyTorch is loaded."""

import argparse
import sys
from pathlib import Path
from typing import Any

from recoup._memory.defaults import default_of
from recoup._memory.fractions import parse_fraction
from recoup._memory.sizes import missing_unit, parse_bytes
from recoup._reporting.files import utf8_name
from recoup.commands.argument_types import (
    Parse,
    budget,
    file_to_write,
    share_group,
    size,
)
from recoup.commands.budget_arguments import (
    add_option,
    add_rules,
    add_tuning,
    check_spill_options,
    check_tuning,
)
from recoup.commands.misplaced import misplaced_options
from recoup.commands.parser import CommandParser
from recoup.commands.programs import check_program
from recoup.commands.run.ending import Ending
from recoup.commands.run.suggested import SUGGESTED, take_suggested_budget, time_plain
from recoup.commands.run.suggestions import read_suggestions
from recoup.known_names import policy_names


def add_run_command(commands: Any) -> None:
    """Adds `run` to the commands of the command line."""
    run: CommandParser = commands.add_parser(
        "run",
        help="run a Python program in a memory budget",
        allow_abbrev=False,
        usage="recoup run --budget SIZE [options] (SCRIPT | -m MODULE | -c CODE | -) [args ...]",
    )
    add_budget_arguments(
        run, budget_or_suggested, description=", or least or knee, as `recoup suggest` finds them"
    )
    _add_files(run)
    run.add_argument(
        "--lines",
        action="store_true",
        default=None,
        help="add to a JSON report the source lines that hold the memory",
    )
    run.add_argument(
        "--time-plain",
        action="store_true",
        help="run the first steps without recoup before, and print the time of a step relative to "
        "theirs",
    )
    run.add_argument("--progress", action="store_true", help="print progress on stderr")
    run.add_argument("--quiet", action="store_true", help="print errors only, no summary")
    run.add_argument(
        "-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module"
    )
    run.add_argument(
        "-c",
        dest="is_code",
        action="store_true",
        help="SCRIPT is the program's code, as for python -c",
    )
    run.add_argument(
        "script", metavar="SCRIPT", help="the Python program to run; -: standard input"
    )
    rest = run.add_argument("args", nargs=argparse.REMAINDER, help="the arguments of the program")
    rest.required = False
    run.set_defaults(command=_run, fail=run.error, own_options=run.option_names())


def _add_files(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--report",
        type=file_to_write(),
        metavar="FILE",
        help="write statistics and the holders of memory to FILE: an HTML page if it ends in "
        ".html, else JSON",
    )
    run.add_argument(
        "--suggestions",
        type=Path,
        metavar="FILE",
        help="show the budgets from this file of `recoup suggest --json` on the page of --report",
    )
    run.add_argument(
        "--timeline",
        type=file_to_write(),
        metavar="FILE",
        help="write a timeline of all events to FILE, for Perfetto and chrome://tracing",
    )
    run.add_argument(
        "--trace",
        type=file_to_write(),
        metavar="FILE",
        help="record the program's ops in FILE, for `recoup simulate` and `recoup suggest --trace`",
    )


def _add_sharing_arguments(run: argparse.ArgumentParser) -> None:
    """Adds the arguments for a budget that other processes influence."""
    run.add_argument(
        "--adapt",
        action="store_true",
        default=None,
        help="reduce the budget while other processes take the machine's memory",
    )
    run.add_argument(
        "--share",
        type=share_group,
        metavar="GROUP",
        help="share the budget with other processes of this machine: node for the children of one "
        "parent, such as the ranks of torchrun, or group:NAME",
    )


def budget_or_suggested(text: str) -> str:
    """A budget of `recoup.budget`, or one that a simulation finds. Stays text."""
    return text if text in SUGGESTED else budget(text)


def add_budget_arguments(
    run: argparse.ArgumentParser, parse_budget: Parse[str] = budget, description: str = ""
) -> None:
    """Adds the arguments that describe a budget.

    parse_budget: the type of --budget.
    description: text about what it accepts in addition to the budgets of `recoup.budget`.
    """
    run.add_argument(
        "--budget",
        type=parse_budget,
        metavar="SIZE",
        help="bytes, a size such as 2GiB, 4g or 500MB, a percentage of the available memory such "
        f"as 60%%, or auto{description}; optional with --trace",
    )
    _add_sharing_arguments(run)
    add_option(
        run,
        "policy",
        "NAME",
        help=f"the eviction policy: {', '.join(policy_names())}; `recoup policies` describes them",
    )
    add_option(
        run,
        "max_slowdown",
        "X",
        help="out of budget if the run's ops and replays cost more than X times its ops alone; 0: "
        "no bound",
    )
    add_option(
        run,
        "device",
        "NAME",
        help="the device of the budget: cpu or a GPU such as cuda:0 (default: cpu)",
    )
    add_option(
        run,
        "spill",
        "SIZE",
        help="add a spill tier of SIZE for values that cannot be recomputed: on disk, or for a GPU "
        "in host memory",
    )
    add_option(
        run,
        "spill_dir",
        "DIR",
        help="the directory of the spill tier on disk (default: the system's directory for "
        "temporary files)",
    )
    add_rules(run)
    add_tuning(run)
    run.add_argument(
        "--check-replays",
        action="store_true",
        default=None,
        help="compare the bits of every replay with the first run (slow)",
    )


def _run(options: argparse.Namespace) -> int:
    if options.is_code and options.is_module:
        options.fail("-c and -m cannot be combined: leave out one")
    options.code = options.script if options.is_code else None
    if options.is_code:
        options.script = "-c"
    _take_defaults(options)
    _require_budget(options)
    _check_together(options)
    _check_files(options)
    if is_file(options):
        check_program(options.script, options.fail)
    options.budget_source = _budget_source(options)
    take_suggested_budget(options)
    options.plain_steps_ns = time_plain(options) if options.time_plain else None
    if not options.quiet:
        _ask_about(options)
    ending = Ending()  # before a library registers exit handlers
    from recoup.commands.run.command import run

    return run(options, ending)


def _take_defaults(options: argparse.Namespace) -> None:
    """Sets what the command line does not give from the environment or pyproject.toml."""
    options.sources = {}
    for name, parse in (("budget", budget_or_suggested), ("spill", size)):
        if getattr(options, name) is not None:
            continue
        try:
            default = default_of(name)
        except ValueError as error:
            options.fail(str(error))
        if default is not None:
            options.sources[name] = default.source
            try:
                setattr(options, name, parse(str(default.value)))
            except argparse.ArgumentTypeError as error:
                options.fail(f"{default.source} {error}")


def _budget_source(options: argparse.Namespace) -> str:
    """What set the budget; empty if nothing did."""
    if options.budget is None:
        return ""
    source: str = options.sources.get("budget", "--budget")
    return f"{source} {options.budget}" if options.budget in SUGGESTED else source


def _require_budget(options: argparse.Namespace) -> None:
    if options.budget is not None or options.trace is not None:
        return
    after = misplaced_options(options.args, options.own_options)
    for name, value in (("--budget", "SIZE"), ("--trace", "FILE")):
        if name in after:
            options.fail(
                f"{name} comes after the script, so it is an argument of {options.script}; put it "
                f"before: recoup run {name} {value} {options.script}"
            )
    if _is_budget(options.script):
        options.fail(
            f"{options.script} was read as the script; if it is the budget, write --budget "
            f"{options.script}"
        )
    options.fail("the following arguments are required: --budget SIZE, such as 4GiB, 60% or auto")


def _is_budget(text: str) -> bool:
    try:
        return parse_fraction(text) is not None or parse_bytes(text) > 0
    except ValueError:
        return False


def _ask_about(options: argparse.Namespace) -> None:
    for what in ("budget", "spill"):
        size = getattr(options, what)
        if size is not None and (doubt := missing_unit(size, what)) is not None:
            print(f"recoup run: warning: {doubt}", file=sys.stderr)
    report: Path | None = options.report
    if report is not None and not is_page(report) and report.suffix not in ("", ".json"):
        print(
            f"recoup run: warning: {report.name} will be JSON; a page needs a name that ends in "
            ".html",
            file=sys.stderr,
        )


def _check_share(options: argparse.Namespace) -> None:
    if options.share is None:
        return
    if options.adapt:
        options.fail("--share and --adapt cannot be combined: leave out one")
    if options.budget in (None, *SUGGESTED) or parse_fraction(options.budget) is not None:
        options.fail(
            "--share needs --budget as a size such as 16GiB, since all processes must give the "
            "same one"
        )


def _check_together(options: argparse.Namespace) -> None:
    """Rejects options that cannot be combined."""
    fail = options.fail
    if options.quiet and options.progress:
        fail("--quiet and --progress cannot be combined: leave out one")
    if options.lines and options.report is None:
        fail("--lines needs a report: add --report FILE.json")
    check_spill_options(options)
    _check_share(options)
    check_tuning(options, [options.policy or "planned"])
    _read_suggestions(options)


def is_file(options: argparse.Namespace) -> bool:
    """Whether the program is a file or folder, and neither a module, code nor standard input."""
    return not options.is_module and not options.is_code and options.script != "-"


def is_page(report: Path | None) -> bool:
    """Whether a report is an HTML page; else it is JSON."""
    return report is not None and report.suffix.lower() in (".html", ".htm")


def _read_suggestions(options: argparse.Namespace) -> None:
    if options.suggestions is None:
        return
    if not is_page(options.report):
        options.fail("--suggestions needs an HTML report: add --report FILE.html")
    try:
        options.suggestions = read_suggestions(options.suggestions)
    except (OSError, ValueError) as error:
        options.fail(f"--suggestions: {error}")


def _check_files(options: argparse.Namespace) -> None:
    """Checks the output files and makes their paths absolute: the program may call `os.chdir`."""
    files: dict[Path, str] = {}
    script = Path(options.script).absolute() if is_file(options) else None
    for name in ("report", "trace", "timeline"):
        file: Path | None = getattr(options, name)
        if file is None:
            continue
        try:
            if name == "trace":
                utf8_name(file)
        except ValueError as error:
            options.fail(f"--{name}: {error}")
        setattr(options, name, file.absolute())
        if file.absolute() == script:
            options.fail(f"--{name} would overwrite the program: {file}")
        if other := files.get(file.absolute()):
            options.fail(f"--{other} and --{name} name the same file: use two files")
        files[file.absolute()] = name
