"""The summary that `recoup run` prints at the end."""

from collections.abc import Sequence

from recoup._memory.sizes import format_bytes
from recoup._reporting.report import counted, format_ns, peak_text
from recoup._reporting.step_times import StepRatio
from recoup.rows import BudgetChange
from recoup.stats import Stats


def summary_lines(
    stats: Stats,
    cost_model: str,
    files: dict[str, str],
    changes: Sequence[BudgetChange] = (),
    further: Sequence[str] = (),
    *,
    source: str = "",
    non_tensor_bytes: int = 0,
) -> list[str]:
    """Returns three lines: memory, time, and the number of replays with the paths of `files`.

    files: the kind of each file that was written, such as "report", and its path.
    changes: the changes of the budget.
    further: lines that follow.
    source: what set the budget, such as "--budget".
    non_tensor_bytes: bytes of the peak that no tensor has.
    """
    largest = max(stats.budget_bytes, *(change.before_bytes for change in changes), 0)
    peak, budget = peak_text(stats.peak_bytes, non_tensor_bytes), format_bytes(largest)
    percent = 100 * stats.peak_bytes / largest
    set_by = f", set by {source}" if source else ""
    done = [counted(stats.replays, "replay")]
    done += [f"{what} in {_shown(path)}" for what, path in files.items()]
    lines = [
        f"peak {peak} of a budget of {budget} ({percent:.1f} %{set_by})",
        _time(stats, cost_model),
        ", ".join(done),
        *further,
    ]
    return [f"recoup: {line}" for line in lines]


def _time(stats: Stats, cost_model: str) -> str:
    if stats.op_count == 0:
        return "no ops ran"
    if cost_model != "measured" or stats.op_ns <= 0:
        return f"time is unknown: the cost model {cost_model!r} does not measure it"
    ratio = (stats.op_ns + stats.added_ns) / stats.op_ns
    return (
        f"about {ratio:.2f}x the time of the program's ops alone: {format_ns(stats.op_ns)} in "
        f"ops, {format_ns(stats.added_ns)} added by the budget"
    )


def steps_line(ratio: StepRatio | None) -> str:
    """The time of a step over that without recoup. ratio: None if there were too few steps."""
    if ratio is None:
        return "--time-plain compares no steps: the program needs two steps of an optimizer"
    return (
        f"a step took {format_ns(ratio.step_ns)}, and {format_ns(ratio.plain_step_ns)} without "
        f"recoup: {ratio.ratio:.2f}x (medians of {counted(ratio.steps, 'step')} and "
        f"{ratio.plain_steps}, the first steps left out)"
    )


def _shown(path: str) -> str:
    return path if path.isprintable() else repr(path)
