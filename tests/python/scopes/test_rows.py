"""The types of the rows that the methods of a run return."""

import dataclasses
import json
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import recoup
from documented import bare_fields
from recoup import rows
from recoup._reporting.page_data import page_data
from recoup._reporting.report import format_report

ROWS = {
    "pinned": recoup.PinnedValue,
    "holders": recoup.Holder,
    "work": recoup.ModuleWork,
    "copy_waits": recoup.CopyWait,
    "kept_graphs": recoup.KeptGraphs,
    "timeline": recoup.Moment,
    "decisions": recoup.Decision,
    "budget_changes": recoup.BudgetChange,
}
"""The row type of each method."""
EXAMPLES = [
    recoup.PinnedValue(bytes=1, by="pin", op="aten::add"),
    recoup.Holder(module="0", kind="buffers", bytes=1, values=1),
    recoup.ModuleWork(
        module="0", ops=1, op_ns=1, replays=0, replay_ns=0, evictions=0, evicted_bytes=0
    ),
    recoup.CopyWait(op="aten::mm", spill_ns=1, fetch_ns=2),
    recoup.KeptGraphs(reason="because", calls=3),
    recoup.Moment("op", "aten::add", 0, 1, 2),
    recoup.Decision("move", 1, 2),
    recoup.BudgetChange(
        start_ns=1, before_bytes=3, after_bytes=2, free_bytes=1, source="/proc/meminfo"
    ),
]


def train() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(128, 128) for _ in range(8)))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        loss = model(torch.randn(32, 128)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def trained(profile: Any) -> recoup.Run:
    """A run that spills, because parameters and their state need more than the budget."""
    with recoup.budget("1MiB", profile=profile, spill="16MiB") as run:
        train()
        held = torch.ones(64)
        held.numpy()  # its address escapes
    return run


@pytest.fixture(scope="module")
def run() -> recoup.Run:
    return trained(("lines", "timeline", "decisions"))


def test_the_rows_have_the_types_that_the_methods_declare() -> None:
    for name, row in ROWS.items():
        assert typing.get_type_hints(getattr(recoup.Run, name))["return"] == list[row], name  # type: ignore[valid-type]
    assert {*map(type, EXAMPLES)} == {*ROWS.values()}
    public = {each for each in vars(rows).values() if dataclasses.is_dataclass(each)}
    assert public == {row for row in ROWS.values() if row.__module__ == "recoup.rows"}
    assert {row.__name__ for row in ROWS.values()} <= {*recoup.__all__}


@pytest.mark.parametrize("row", ROWS.values())
def test_every_field_of_a_row_is_documented(row: type[Any]) -> None:
    assert row.__doc__ and not row.__doc__.startswith(f"{row.__name__}(")
    assert bare_fields(row) == []


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: type(row).__name__)
def test_rows_are_frozen_and_compare_by_value(row: Any) -> None:
    for field in dataclasses.fields(row):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(row, field.name, None)
    assert row == dataclasses.replace(row) and len({row, dataclasses.replace(row)}) == 1


@pytest.mark.parametrize(
    "rows_of",
    [
        recoup.Run.pinned,
        recoup.Run.holders,
        lambda run: run.holders(each=True),
        recoup.Run.work,
        recoup.Run.copy_waits,
        recoup.Run.timeline,
        recoup.Run.decisions,
        lambda _: EXAMPLES,
    ],
    ids=["pinned", "holders", "each", "work", "copy_waits", "timeline", "decisions", "examples"],
)
def test_rows_as_dictionaries_are_json(
    run: recoup.Run, rows_of: Callable[[recoup.Run], list[Any]]
) -> None:
    found = rows_of(run)
    assert found
    for row in found:
        fields = dataclasses.asdict(row)
        assert json.loads(json.dumps(fields)) == fields
        assert type(row)(**fields) == row


def test_only_fields_that_were_not_recorded_are_none(run: recoup.Run) -> None:
    def missing(found: list[Any]) -> set[str]:
        return {name for row in found for name, value in vars(row).items() if value is None}

    assert missing(trained(None).pinned()) == {"module", "kind", "name"}
    assert missing(run.pinned()) == set()
    assert missing(run.holders()) == {"op", "name", "line"}
    assert missing(run.holders(each=True)) == set()
    assert any(row.line for row in run.holders(each=True))
    assert {row.line for row in trained("modules").holders(each=True)} == {""}
    assert {row.kind for row in run.holders()} <= {*typing.get_args(rows.MemoryKind)}


def test_a_report_has_only_the_fields_that_were_recorded(run: recoup.Run) -> None:
    data = json.loads(json.dumps(page_data(run)))
    assert [*data["peak"]["rows"][0]] == ["module", "kind", "bytes", "values"]
    counts = ["ops", "op_ns", "replays", "replay_ns", "evictions", "evicted_bytes"]
    assert [*data["modules"][0]] == ["module", *counts]
    assert [*data["pinned"][0]] == ["bytes", "values", "by", "kind", "op", "module", "why"]
    each = run.holders(each=True)[0]
    assert [*rows.recorded(each)] == ["module", "kind", "op", "name", "line", "bytes", "values"]


def test_the_text_report_counts_calls_of_kept_graphs(run: recoup.Run) -> None:
    kept = recoup.KeptGraphs(reason="it was not possible", calls=1234)
    lines = format_report(run.stats(), [], policy="lru", kept_graphs=[kept]).splitlines()
    assert any(line.split() == ["1,234", "it", "was", "not", "possible"] for line in lines)
