"""The command line: `recoup run`, `policies`, `simulate`, `layout`, `order` and `bench`."""

import argparse
import atexit
import builtins
import functools
import importlib.machinery
import io
import json
import os
import runpy
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import recoup
from recoup import gpus
from recoup.budgets import Budget
from recoup.commands.bench_command import add_bench_command
from recoup.commands.layout_command import add_layout_command
from recoup.commands.order_command import add_order_command
from recoup.commands.progress import Progress
from recoup.commands.simulate_command import add_simulate_command
from recoup.errors import OutOfBudgetError
from recoup.files import write_atomically
from recoup.run import Run, free_bytes
from recoup.tables import format_table, plain_table

_USAGE_ERROR = 2


class _Parser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(_USAGE_ERROR, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that `argv` (by default the process's own arguments) says.

    Returns the exit code. What the user's program raises passes through, SystemExit and
    KeyboardInterrupt included, so that Python ends as it would without us.
    """
    options = _parser().parse_args(argv)
    code: int = options.command(options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="recoup", description="Runs an unmodified PyTorch program in a memory budget."
    )
    parser.add_argument("--version", action="version", version=f"recoup {recoup.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

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

    policies = commands.add_parser("policies", help="list the policies")
    policies.set_defaults(command=_print_policies)
    add_simulate_command(commands)
    add_layout_command(commands)
    add_order_command(commands)
    add_bench_command(commands)
    return parser


def _print_policies(_: argparse.Namespace) -> int:
    def yes(is_on: bool) -> str:
        return "yes" if is_on else "no"

    columns = ("policy", "small filter", "sampling", "what it evicts first")
    table = plain_table(*columns, texts=len(columns), ruled=False)
    for p in recoup.policies(simulated=True):
        table.add_row(p.name, yes(p.small_filter), yes(p.sampling), p.summary)
    print(format_table(table))
    return 0


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
    program = _find_program(options)

    job = _Job(budget, options)
    # First, so that it comes last: the program's own exit handlers still run inside the budget.
    atexit.register(job.end)
    try:
        job.start()
    except (RuntimeError, ValueError) as error:  # a GPU has not so much
        options.fail(str(error))
    try:
        program()
    except BaseException:
        # What Python prints starts where the program does, whatever hook the program has set.
        sys.excepthook = functools.partial(_call_hook_without_our_frames, sys.excepthook)
        raise
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


def _find_program(options: argparse.Namespace) -> Callable[[], None]:
    """What runs the program as `python` would; exits as it does when there is none."""
    sys.argv = [options.script, *options.args]
    if options.is_module:
        _set_first_path(os.getcwd())
        return functools.partial(_run_module, options.script)
    # Absolute, as in the tracebacks and the __file__ of any script.
    path = os.path.abspath(options.script)
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        # Runs the __main__.py inside and sets sys.path[0] itself.
        _set_first_path(None)
        return functools.partial(_run_path, path)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"recoup run: can't open file {path!r}: {reason}", file=sys.stderr)
        sys.exit(_USAGE_ERROR)
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    return functools.partial(_run_script, path, source)


def _set_first_path(folder: str | None) -> None:
    """Puts `folder` where Python has put that of our own program; in safe-path mode it put none."""
    if getattr(sys.flags, "safe_path", False):
        return
    sys.path[:1] = [] if folder is None else [folder]


def _run_script(path: str, source: bytes) -> None:
    # A module of its own, which is what pickle, multiprocessing and `import __main__` look for.
    main_module = types.ModuleType("__main__")
    namespace: dict[str, Any] = main_module.__dict__
    namespace.update(
        __file__=path,
        __annotations__={},
        __builtins__=builtins,
        __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
    )
    _replaced.append(sys.modules["__main__"])
    sys.modules["__main__"] = main_module
    exec(compile(source, path, "exec", dont_inherit=True), namespace)


# Our own `__main__`, kept since its names go when it goes.
_replaced: list[types.ModuleType] = []


def _run_module(name: str) -> None:
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_path(path: str) -> None:
    runpy.run_path(path, run_name="__main__")


def _call_hook_without_our_frames(
    hook: Callable[..., Any],
    kind: type[BaseException],
    error: BaseException,
    traceback: types.TracebackType | None,
) -> None:
    # The whole package: the frame of its __main__.py is outside this folder.
    ours = (os.path.dirname(recoup.__file__) + os.sep, "<frozen runpy>", runpy.__file__)
    inner = traceback
    # The launcher's frame, ours and runpy's come first.
    last_of_ours = None
    while inner is not None:
        if inner.tb_frame.f_code.co_filename.startswith(ours):
            last_of_ours = inner
        elif last_of_ours is not None:
            break
        inner = inner.tb_next
    # A program that does not compile has no frame: its error says where.
    if last_of_ours is not None:
        traceback = inner
    hook(kind, error.with_traceback(traceback), traceback)
