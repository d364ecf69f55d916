"""The data of a page about a run, as JSON has it."""

import dataclasses
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from recoup import _C
from recoup.rows import PinnedValue, recorded

if TYPE_CHECKING:
    from recoup._reporting.attribution import Result
    from recoup.run import Run


def page_data(
    run: "Run",
    *,
    title: str = "",
    command: Sequence[str] = (),
    wall_ns: int = 0,
    suggestions: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The data that `recoup.page.render` shows and `recoup run --report` writes.

    `peak`, `modules` and `step` are empty if the run did not record them: see `recoup.budget`.
    """
    named = run.attribution()
    stats = run.stats()
    failures = run.failures()
    failed_step = next((each.step for each in failures if each.step), None)
    step = failed_step or (named.step if named else None)
    return {
        "title": title or "a run in recoup",
        "command": list(command),
        "versions": versions(),
        "settings": run.settings(),
        "wall_ns": wall_ns,
        "device": str(run.device),
        "budget_changes": [dataclasses.asdict(change) for change in run.budget_changes()],
        "shared_budget": dataclasses.asdict(shared) if (shared := run.shared_budget()) else None,
        "failures": [failure.to_dict() for failure in failures],
        "stats": stats.to_groups(),
        "peak": {
            "bytes": stats.peak_bytes,
            "non_tensor_bytes": run.non_tensor_peak_bytes(),
            "rows": list(map(recorded, named.holders())) if named else [],
            "lines": named.holding_lines() if named else [],
        },
        "modules": list(map(recorded, named.work())) if named else [],
        "pinned": _pinned(run.pinned()),
        "step": _step(named, step) if named and step else None,
        "suggestions": suggestions,
        "step_ratio": None,
    }


_KEYS = {"fake": "Fake", "backend_select": "BackendSelect"}


def interception() -> str:
    """Where recoup receives each op: a dispatch key of PyTorch."""
    return f"dispatch key {_KEYS[_C.hook]}"


def versions() -> dict[str, str]:
    """Versions of everything that determines a run's behavior."""
    return {
        "recoup": _C.__version__,
        "PyTorch": torch.__version__,
        "Python": platform.python_version(),
        "ops intercepted at": interception(),
        "system": platform.platform(),
    }


def _pinned(rows: Sequence[PinnedValue]) -> list[dict[str, Any]]:
    """Pinned values grouped by reason, kind, op and module, largest first."""
    sizes: Counter[tuple[str, ...]] = Counter()
    counts: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        key = (row.by, row.kind or "", row.op, row.module or "", row.why)
        sizes[key] += row.bytes
        counts[key] += 1
    names = ("by", "kind", "op", "module", "why")
    return [
        {"bytes": size, "values": counts[key], **dict(zip(names, key, strict=True))}
        for key, size in sizes.most_common()
    ]


def _step(named: "Result", step: Mapping[str, Any]) -> dict[str, Any]:
    groups: dict[tuple[str, str, str], int] = {}

    def group(maker: int, name: int, source: bool) -> int:
        key = (named.module(maker, name), named.kind(maker, name, source=source), named.op(maker))
        return groups.setdefault(key, len(groups))

    spans = [
        [begin, end, size, group(maker, name, source)]
        for begin, end, size, maker, name, source in step["spans"]
    ]
    if outside := named.outside_bytes:
        other = groups.setdefault(("", "other", ""), len(groups))
        spans.append([step["begin_ns"], step["end_ns"], outside, other])
    events = [
        [moment.kind, moment.start_ns, moment.cost_ns, moment.size_bytes, moment.name, of]
        for moment, of in ((named.moment(row), group(row[5], -1, False)) for row in step["moments"])
        if moment.kind != "step"
    ]
    return {
        "name": step["name"] or ("not finished" if step["number"] else "the run so far"),
        "number": step["number"] + 1,
        "begin_ns": step["begin_ns"],
        "end_ns": step["end_ns"],
        "budget_bytes": step["budget_bytes"],
        "groups": [{"module": module, "kind": kind, "op": op} for module, kind, op in groups],
        "spans": spans,
        "charged": [list(each) for each in step["charged"]],
        "budgets": [list(each) for each in step["budgets"]],
        "events": events,
        "cut": step["cut"],
    }
