"""The text report of a run."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from recoup._memory.sizes import format_bytes
from recoup.paged import PagedResults
from recoup.rows import BudgetChange, CopyWait, Holder, KeptGraphs, ModuleWork, PinnedValue
from recoup.shared import SharedBudget
from recoup.stats import Stats

_PINNED_ROWS = 10
_WAIT_ROWS = 5
_MODULE_ROWS = 10
NO_MODULE = "outside modules"
_WORDS = "The command `recoup glossary` explains these terms."


def format_report(
    stats: Stats,
    pinned: Sequence[PinnedValue],
    *,
    policy: str,
    steps: int = 0,
    copy_waits: Sequence[CopyWait] = (),
    kept_graphs: Sequence[KeptGraphs] = (),
    budget_changes: Sequence[BudgetChange] = (),
    shared: SharedBudget | None = None,
    paged: PagedResults | None = None,
    non_tensor_bytes: int = 0,
    holders: Sequence[Holder] = (),
    modules: Sequence[ModuleWork] = (),
) -> str:
    """Peak, work, time by kind and the values that cannot be evicted, as aligned plain text.

    steps: number of marked steps; with a spill tier it relates the copies to a step.
    shared: the budget of all processes, if they share one.
    paged: the use of paged memory, if a result did not fit in the budget.
    non_tensor_bytes: bytes of the peak that no tensor has.
    The other parameters are the rows of `Run.pinned()`, `Run.copy_waits()`, `Run.kept_graphs()`,
    `Run.budget_changes()`, `Run.holders()` and `Run.work()`. Pinned values of one op and reason are
    added up.
    """
    parts = [
        f"recoup: policy {policy}, budget {_exact(stats.budget_bytes)}",
        *([budget_line(budget_changes)] if budget_changes else []),
        *([shared_line(shared)] if shared else []),
        *([paged_line(paged)] if paged else []),
        _memory_table(stats, non_tensor_bytes),
        _work_table(stats, steps),
        _time_table(stats),
        *([_wait_table(copy_waits)] if copy_waits else []),
        *([_plan_table(stats)] if stats.foreseen_steps else []),
        *(_holder_tables(holders)),
        *([_module_table(modules)] if modules else []),
        _pinned_table(pinned),
        *([_graph_table(kept_graphs)] if kept_graphs else []),
    ]
    return "\n\n".join([*parts, _WORDS])


def format_memory(stats: Stats, pinned: Sequence[PinnedValue], *, policy: str) -> str:
    """The memory of `format_report` alone: sizes, and which tensors cannot be evicted and why."""
    head = f"recoup: policy {policy}, budget {_exact(stats.budget_bytes)}"
    return "\n\n".join([head, _memory_table(stats), _pinned_table(pinned)])


def run_line(stats: Stats, state: str) -> str:
    """A run in one line, for `repr`: its state, its peak, and the evictions, replays and spills."""
    peak, budget = format_bytes(stats.peak_bytes), format_bytes(stats.budget_bytes)
    done = [counted(stats.evictions, "eviction"), counted(stats.replays, "replay")]
    if stats.spills:
        done.append(counted(stats.spills, "spill"))
    return f"<recoup.Run: {state}, peak {peak} of a budget of {budget}, {', '.join(done)}>"


def counted(count: int, what: str) -> str:
    """'1 replay', '1,234 replays'."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def format_ns(duration_ns: int) -> str:
    """Nanoseconds for a person: '850 ns', '1.25 ms', '12.50 s'."""
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if duration_ns >= scale:
            return f"{duration_ns / scale:.2f} {unit}"
    return f"{duration_ns} ns"


def _exact(count: int) -> str:
    return f"{count:,} bytes ({format_bytes(count)})"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def budget_line(changes: Sequence[BudgetChange]) -> str:
    """Whether the budget has changed, how often, and its lowest size, in words."""
    if not changes:
        return "The budget followed the machine's memory, and did not change."
    said = f"The budget followed the machine's memory: {counted(len(changes), 'change')}"
    lowest = min(changes, key=lambda change: change.after_bytes)
    if lowest.after_bytes >= changes[0].before_bytes:
        return f"{said}, at least {format_bytes(changes[0].before_bytes)}."
    return (
        f"{said}. The lowest was {format_bytes(lowest.after_bytes)}, "
        f"{format_ns(lowest.start_ns)} after the scope began, when "
        f"{format_bytes(lowest.free_bytes)} were free according to {lowest.source}."
    )


def shared_line(shared: SharedBudget) -> str:
    """The largest part of this process, and the waits for memory of others, in words."""
    waited = "No op waited"
    if shared.waits:
        waited = f"{counted(shared.waits, 'op')} waited {format_ns(shared.wait_ns)}"
    return (
        f"The budget of {format_bytes(shared.total_bytes)} was shared with other processes. This "
        f"process had at most {format_bytes(shared.most_bytes)} of it. {waited} for memory of "
        "other processes."
    )


def paged_line(paged: PagedResults) -> str:
    """The results that did not fit in the budget, and the copies of their parts, in words."""
    read, written = format_bytes(paged.read_bytes), format_bytes(paged.written_bytes)
    return (
        f"Results that did not fit in the budget were paged: at most "
        f"{format_bytes(paged.most_bytes)} at a time. While ops ran, {read} of them were read from "
        f"the disk and {written} written, in {format_ns(paged.disk_ns)}."
    )


def peak_text(peak_bytes: int, non_tensor_bytes: int) -> str:
    """'1.2 GiB', or with memory that no tensor has '1.2 GiB (1.0 GiB of tensors + ...)'."""
    peak, parts = format_bytes(peak_bytes), peak_parts(peak_bytes, non_tensor_bytes)
    return f"{peak} ({parts})" if parts else peak


def peak_parts(peak_bytes: int, non_tensor_bytes: int) -> str:
    """The parts of a peak, such as '1.0 GiB of tensors + 0.2 GiB of the process', or nothing."""
    if not non_tensor_bytes:
        return ""
    tensors, other = format_bytes(peak_bytes - non_tensor_bytes), format_bytes(non_tensor_bytes)
    return f"{tensors} of tensors + {other} of the process"


def copies_line(stats: Stats) -> str:
    """What was written to the spill tier and read from it, in words."""
    written, read = format_bytes(stats.spilled_bytes), format_bytes(stats.fetched_bytes)
    return (
        f"The spill tier held at most {format_bytes(stats.spill_peak_bytes)}. {written} were "
        f"written to it, and {read} read from it."
    )


def _memory_table(stats: Stats, non_tensor_bytes: int = 0) -> str:
    rows = [
        ("peak", stats.peak_bytes),
        *([("of it the process", non_tensor_bytes)] if non_tensor_bytes else []),
        ("resident", stats.resident_bytes),
        ("outside the pool", stats.external_bytes),
        *([("of CUDA graphs", stats.graph_bytes)] if stats.graph_bytes else []),
        ("metadata, peak", stats.metadata_peak_bytes),
    ]
    return _table(
        ("memory", "size", "of budget"),
        ((name, format_bytes(n), _percent(n, stats.budget_bytes)) for name, n in rows),
    )


def _work_table(stats: Stats, steps: int) -> str:
    rows = [
        ("ops", f"{stats.op_count:,}", ""),
        ("replays", f"{stats.replays:,}", ""),
        ("evictions", f"{stats.evictions:,}", format_bytes(stats.evicted_bytes)),
        ("drops", f"{stats.drops:,}", ""),
        ("moves", f"{stats.moves:,}", format_bytes(stats.moved_bytes)),
        ("escapes", f"{stats.escapes:,}", ""),
    ]
    if stats.imports:
        size = format_bytes(stats.imported_bytes)
        rows.append(("imported into the pool", f"{stats.imports:,}", size))
    if stats.spills:
        rows.append(("spills", f"{stats.spills:,}", format_bytes(stats.spilled_bytes)))
        rows.append(("of these, during ops", "", format_bytes(stats.written_behind_bytes)))
        rows.append(("evicted, already spilled", f"{stats.clean_spills:,}", ""))
        rows.append(("fetches", f"{stats.fetches:,}", format_bytes(stats.fetched_bytes)))
        rows.append(("of these, during ops", "", format_bytes(stats.fetched_ahead_bytes)))
        if stats.unread_copies:
            rows.append(("unreadable spilled copies", f"{stats.unread_copies:,}", ""))
        rows.append(("spilled, peak", "", format_bytes(stats.spill_peak_bytes)))
        if steps:
            rows.append(("spilled a step, mean", "", format_bytes(stats.spilled_bytes // steps)))
            rows.append(("fetched a step, mean", "", format_bytes(stats.fetched_bytes // steps)))
    return _table(("work", "count", "bytes"), rows)


def _time_table(stats: Stats) -> str:
    kinds = [
        ("program ops", stats.op_ns),
        ("replays", stats.replay_ns),
        ("search", stats.search_ns),
        ("bookkeeping", stats.bookkeeping_ns),
        ("moves", stats.move_ns),
        ("allocator", stats.allocator_ns),
    ]
    if stats.spills:
        kinds += [("spills", stats.spill_ns), ("fetches", stats.fetch_ns)]
    return _table(
        ("time", "spent", "of ops"),
        ((name, format_ns(ns), _percent(ns, stats.op_ns)) for name, ns in kinds),
    )


def _wait_table(waits: Sequence[CopyWait]) -> str:
    named = [(row.op or "between ops", row.spill_ns, row.fetch_ns) for row in waits]
    rows, rest = named[:_WAIT_ROWS], named[_WAIT_ROWS:]
    if rest:
        rows.append(("others", sum(row[1] for row in rest), sum(row[2] for row in rest)))
    return _table(
        ("waits for copies", "spills", "fetches"),
        ((op, format_ns(spill), format_ns(fetch)) for op, spill, fetch in rows),
    )


def _plan_table(stats: Stats) -> str:
    rows = [
        ("steps planned", f"{stats.foreseen_steps:,}", ""),
        ("steps with a plan", f"{stats.eviction_lists:,}", ""),
        ("plans abandoned because they cost more", f"{stats.given_up_lists:,}", ""),
        ("steps that followed a plan", f"{stats.followed_steps:,}", ""),
        ("steps that left a plan at another op", f"{stats.left_steps:,}", ""),
        ("evictions", f"{stats.listed_evictions:,}", ""),
        ("blocks at planned addresses", f"{stats.planned_blocks:,}", ""),
        ("blocks elsewhere", f"{stats.misplaced_blocks:,}", ""),
        ("replays and moves, expected", "", format_ns(stats.followed_expected_ns)),
        ("replays and moves, actual", "", format_ns(stats.followed_cost_ns)),
        ("planning", "", format_ns(stats.planning_ns)),
    ]
    return _table(("planned evictions", "count", "time"), rows)


def _holder_tables(holders: Sequence[Holder]) -> list[str]:
    if not holders:
        return []
    peak = sum(row.bytes for row in holders)
    kinds: Counter[str] = Counter()
    modules: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in holders:
        kinds[row.kind] += row.bytes
        modules[row.module or NO_MODULE][row.kind] += row.bytes
    by_kind = [
        (kind, format_bytes(held), _percent(held, peak)) for kind, held in kinds.most_common()
    ]
    largest = sorted(modules.items(), key=lambda item: -item[1].total())
    by_module = [
        (name, format_bytes(held.total()), _percent(held.total(), peak), held.most_common(1)[0][0])
        for name, held in largest[:_MODULE_ROWS]
    ]
    if rest := largest[_MODULE_ROWS:]:
        left = sum(held.total() for _, held in rest)
        by_module.append((f"{len(rest)} others", format_bytes(left), _percent(left, peak), "-"))
    return [
        _table(("at the peak, by kind", "size", "of the peak"), by_kind),
        _table(("at the peak, by module", "size", "of the peak", "largest kind"), by_module),
    ]


def _module_table(modules: Sequence[ModuleWork]) -> str:
    rows = [
        (
            row.module or NO_MODULE,
            format_ns(row.op_ns),
            counted(row.ops, "op"),
            f"{counted(row.replays, 'replay')}, {format_ns(row.replay_ns)}" if row.replays else "-",
        )
        for row in modules[:_MODULE_ROWS]
    ]
    if rest := modules[_MODULE_ROWS:]:
        spent = format_ns(sum(row.op_ns for row in rest))
        ops = counted(sum(row.ops for row in rest), "op")
        replays = counted(sum(row.replays for row in rest), "replay")
        again = f"{replays}, {format_ns(sum(row.replay_ns for row in rest))}"
        rows.append((f"{len(rest)} others", spent, ops, again))
    return _table(("time, by module", "spent", "", "replays"), rows)


def _pinned_table(pinned: Sequence[PinnedValue]) -> str:
    groups: dict[tuple[str, str, str], list[int]] = {}
    for row in pinned:
        groups.setdefault((row.by, row.op, row.why), []).append(row.bytes)
    largest = sorted(groups.items(), key=lambda group: sum(group[1]), reverse=True)
    rows = [
        (by, format_bytes(sum(sizes)), f"{len(sizes):,}", op or "-", why)
        for (by, op, why), sizes in largest[:_PINNED_ROWS]
    ]
    if rest := [size for _, sizes in largest[_PINNED_ROWS:] for size in sizes]:
        rows.append(("others", format_bytes(sum(rest)), f"{len(rest):,}", "-", ""))
    if not groups:
        rows.append(("nothing", "-", "-", "-", ""))
    return _table(("cannot be evicted", "size", "values", "made by", "reason"), rows)


def _graph_table(kept: Sequence[KeptGraphs]) -> str:
    return _table(
        ("compiled graphs", "calls", "", "reason why results were not evicted"),
        (("", f"{row.calls:,}", "", row.reason) for row in kept),
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    # These load rich, which `import recoup` must not.
    from recoup._reporting.tables import format_table, plain_table

    table = plain_table(*columns, ruled=False)
    # Equal widths align the tables with one another.
    table.columns[0].min_width = len("cannot be evicted")
    table.columns[1].min_width = len("1,000,000,000")
    for column in table.columns[3:]:
        column.justify = "left"
    for row in rows:
        table.add_row(*row)
    return format_table(table)
