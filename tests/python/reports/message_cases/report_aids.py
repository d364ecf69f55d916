"""Reports for the cases."""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import recoup
from recoup._patching import compiled
from recoup._patching.compiled_plan import Plan
from recoup._reporting.failures import failure_of
from recoup._reporting.report import format_report, run_line
from recoup.bench.flat_options import split

MIB = 1 << 20


def _made_up() -> recoup.Stats:
    numbers = {field.name: 3 for field in dataclasses.fields(recoup.Stats)}
    known = {"budget_bytes": 16 * MIB, "peak_bytes": 15 * MIB, "resident_bytes": 9 * MIB}
    sizes = {name: MIB for name in numbers if name.endswith("_bytes")}
    times = {name: 1_250_000 for name in numbers if name.endswith("_ns")}
    return recoup.Stats(**{**numbers, **sizes, **times, **known})


def line_of_made_up_figures() -> str:
    """What `repr` says of a run whose exit failed."""
    return run_line(_made_up(), "suspended")


def report_of_made_up_figures() -> str:
    """A report with all its tables."""
    times = {"op_ns": 2_500_000, "replay_ns": 850}
    counts = {"ops": 4, "replays": 1, "evictions": 1, "evicted_bytes": MIB}
    work = recoup.ModuleWork(module="0", **times, **counts)
    return format_report(
        _made_up(),
        [
            recoup.PinnedValue(
                bytes=2 * MIB,
                by="non-recomputable",
                op="aten::ones",
                why="its memory is uninitialized",
            ),
            recoup.PinnedValue(bytes=64 * MIB, by="in paged memory", op=""),
        ],
        policy="planned",
        copy_waits=[recoup.CopyWait(op="aten::mm", spill_ns=1_250_000, fetch_ns=2_500_000)],
        paged=recoup.PagedResults(
            now_bytes=0,
            most_bytes=64 * MIB,
            read_bytes=96 * MIB,
            written_bytes=48 * MIB,
            disk_ns=250_000_000,
        ),
        kept_graphs=[
            recoup.KeptGraphs(
                reason="it modifies large inputs, which are expensive to copy", calls=2
            )
        ],
        holders=[recoup.Holder(module="0", kind="parameters", bytes=15 * MIB, values=2)],
        modules=[work],
    )


def print_help(body: Callable[[], Any], **options: Any) -> None:
    """What a report says would have helped a body that failed."""
    try:
        with recoup.budget("2MiB", **split(options)):
            body()
    except recoup.OutOfBudgetError as error:
        failure = failure_of(error, "body", None, list)
        assert failure is not None
        print(*failure.help, sep="\n")


def help_of(**sizes: int) -> tuple[str, ...]:
    """The same for an error with these sizes."""
    error = recoup.OutOfBudgetError()
    for name, size in sizes.items():
        setattr(error, name, size)
    failure = failure_of(error, "body", None, list)
    assert failure is not None
    return failure.help


def why_kept(*, given: list[object]) -> str:
    """Why a call of a compiled graph cannot be run again."""
    return compiled._how(Plan("", "", frozenset(), frozenset(), ()), given)[1]


def wrong_reports() -> Iterator[Any]:
    """Changes of a report that a page refuses; rows of where, what, and what is said."""
    from test_page_shape import WRONG

    yield from WRONG


def say_what_is_wrong(where: str, value: Any) -> None:
    from page_reports import gpt2_report

    report = copy.deepcopy(gpt2_report())
    at: Any = report
    *path, last = where.split(".")
    for part in path:
        at = at[int(part) if part.isdecimal() else part]
    at[last] = value
    try:
        recoup.page.render(report)
    except (TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
