"""What adjusts the budget of an open scope to other processes."""

from recoup import _C
from recoup._memory.device_memory import memory_bytes
from recoup._memory.share_group import file_of
from recoup._memory.sharer import Sharer
from recoup._memory.watcher import Watcher
from recoup.rows import BudgetChange
from recoup.setup import Setup
from recoup.shared import SharedBudget, SharedPart
from recoup.stats import Stats

Adjuster = Watcher | Sharer


def make_adjuster(setup: Setup, engine: _C.Engine, budget_bytes: int) -> Adjuster | None:
    """What adjusts the budget; None if it is fixed.

    engine: not entered yet. budget_bytes: the budget that the user gave.
    Raises ValueError, OSError or RuntimeError if the budget cannot be shared.
    """
    if setup.shared_as is not None:
        engine.share(file_of(setup.shared_as), budget_bytes)
        return Sharer(engine, budget_bytes)
    if setup.adapts:
        engine.count_pages()
        is_auto = setup.fraction is not None and setup.fraction.value is None
        return Watcher(engine, memory_bytes(setup.device) if is_auto else budget_bytes)
    return None


def set_budget(adjuster: Adjuster | None, engine: _C.Engine, size: int) -> None:
    """Sets the budget at the user's request.

    Raises ValueError if it is shared, and OutOfBudgetError.
    """
    if isinstance(adjuster, Sharer):
        raise ValueError(
            "run.set_budget cannot change a budget that other processes share: end all scopes, "
            "and begin them with another budget"
        )
    if adjuster is None:
        engine.set_budget(size)
        return
    # First, so that the thread of the watcher cannot increase the budget again.
    before, adjuster.most_bytes = adjuster.most_bytes, size
    try:
        engine.set_budget(size)
    except BaseException:
        adjuster.most_bytes = before
        raise


def changes_of(adjuster: Adjuster | None) -> list[BudgetChange]:
    """The changes of a budget that follows the machine's memory, in order."""
    return adjuster.changes if isinstance(adjuster, Watcher) else []


def stats_of(adjuster: Adjuster | None, engine: _C.Engine) -> Stats:
    """The statistics of the run. The budget of a process that shares one is its largest part."""
    counts = engine.stats()
    if isinstance(adjuster, Sharer):
        counts = counts | {"budget_bytes": engine.share_counters()["most_bytes"]}
    return Stats.from_engine(counts)


def shared_budget(adjuster: Adjuster | None, engine: _C.Engine) -> SharedBudget | None:
    """The budget that the processes share; None if it is not shared."""
    if not isinstance(adjuster, Sharer):
        return None
    rows = engine.share_parts() if engine.entered() or engine.suspended() else []
    parts = tuple(
        SharedPart(
            process=row["process"],
            is_own=row["is_own"],
            part_bytes=row["part"],
            worker_bytes=row["workers"],
            wait_ns=row["wait_ns"],
        )
        for row in rows
    )
    return SharedBudget(**engine.share_counters(), parts=parts)
