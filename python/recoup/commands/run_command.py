"""`recoup run`: a script in a budget."""

import argparse
import atexit
import typing
from pathlib import Path
from typing import Any

from recoup.commands.own_lines import OwnLines
from recoup.commands.run_job import Job
from recoup.commands.run_program import cannot_open, find_program, run_as_python
from recoup.commands.run_settings import OPTIONS, is_page, make_budget
from recoup.commands.run_suggestions import read_suggestions
from recoup.files import check_writable, utf8_name
from recoup.run import Planning

_USAGE_ERROR = 2


def add_run_command(commands: Any) -> None:
    """Adds the command to the parser's subparsers."""
    run = commands.add_parser(
        "run",
        help="run a script as python would, in a budget",
        allow_abbrev=False,
        usage="recoup run --budget SIZE [options] (SCRIPT | -m MODULE) [args ...]",
    )
    _add_budget_arguments(run)
    run.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write how it went and who held the memory to this file: a page if it ends in .html, "
        "else JSON",
    )
    run.add_argument(
        "--suggestions",
        type=Path,
        metavar="FILE",
        help="of `recoup suggest --json`: the page of --report shows these budgets too",
    )
    run.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="write what happened when to this file, for Perfetto and chrome://tracing",
    )
    run.add_argument(
        "--stacks",
        action="store_true",
        default=None,
        help="of a JSON report: the lines of the program that hold the memory, too",
    )
    run.add_argument(
        "--trace", type=Path, metavar="FILE", help="record what the program does to this file"
    )
    run.add_argument("--progress", action="store_true", help="say on stderr how it goes")
    run.add_argument(
        "--quiet", action="store_true", help="say nothing but errors, not even how it went"
    )
    run.add_argument(
        "-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module"
    )
    run.add_argument("script", metavar="SCRIPT", help="a Python program")
    run.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    run.set_defaults(command=_run, fail=run.error)


def _add_budget_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--budget",
        metavar="SIZE",
        help="bytes, a size such as 2GiB or 500MB, a share of what is free such as 60%%, or auto; "
        "only a recording needs none",
    )
    run.add_argument(
        "--policy", metavar="NAME", help="what to evict; see `recoup policies` (default: planned)"
    )
    run.add_argument(
        "--planning",
        metavar="|".join(typing.get_args(Planning)),
        help="when evictions are planned for a step that repeats: never, at its end, or beside "
        "the program (default: background)",
    )
    run.add_argument(
        "--max-replay-ratio",
        metavar="X",
        help="out of budget when getting the arguments of an op back costs more than this many "
        "times all ops on record; 0: no bound (default: 10)",
    )
    run.add_argument(
        "--device",
        metavar="NAME",
        help="whose memory: cpu, or a GPU such as cuda:0 (default: cpu)",
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
    run.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"any other argument of recoup.budget: {', '.join(OPTIONS)}",
    )
    run.add_argument(
        "--verify", action="store_true", default=None, help="check every replay's bits (slow)"
    )


def _run(options: argparse.Namespace) -> int:
    if options.quiet and options.progress:
        options.fail("--quiet leaves nothing for --progress")
    if options.stacks and options.report is None:
        options.fail("--stacks are lines for a report: --report FILE.json")
    _check_files(options)
    _read_suggestions(options)
    budget, settings = make_budget(options)
    own = OwnLines()
    try:
        program = find_program(options)
    except OSError as error:
        own.say(f"recoup run: {cannot_open(error)}")
        return _USAGE_ERROR

    job = Job(budget, settings, options, own)
    # First, so that it comes last: the program's own exit handlers still run inside the budget.
    atexit.register(job.end)
    try:
        job.start()
    except (RuntimeError, ValueError) as error:  # a GPU has not so much, a tier has no place
        flag = "--budget" if options.spill is None else "--spill"
        options.fail(f"{flag}: {str(error).removeprefix('recoup: ')}")
    run_as_python(program)
    return 0


def _read_suggestions(options: argparse.Namespace) -> None:
    if options.suggestions is None:
        return
    if not is_page(options.report):
        options.fail("--suggestions are shown by a page: --report FILE.html")
    try:
        options.suggestions = read_suggestions(options.suggestions)
    except (OSError, ValueError) as error:
        options.fail(f"--suggestions: {error}")


def _check_files(options: argparse.Namespace) -> None:
    """The files to write, which the program's own `os.chdir` does not move."""
    files: dict[Path, str] = {}
    script = None if options.is_module else Path(options.script).absolute()
    for name in ("report", "trace", "timeline"):
        file: Path | None = getattr(options, name)
        if file is None:
            continue
        try:
            check_writable(file)
            if name == "trace":
                utf8_name(file)
        except (OSError, ValueError) as error:
            options.fail(f"--{name}: {error}")
        setattr(options, name, file.absolute())
        if file.absolute() == script:
            options.fail(f"--{name} would write over the program: {file}")
        if other := files.get(file.absolute()):
            options.fail(f"--{other} and --{name} are one file: each needs its own")
        files[file.absolute()] = name
