"""`PinnedValue.why`: each reason why a value cannot be recomputed, shown by a program."""

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import recoup
from recoup._reporting.failures import failure_of
from recoup.rows import TAKEN_AT

SOURCE = Path(__file__).parents[3] / "csrc/lineage/no_replay.cpp"
SIZE = 1 << 18
"""Elements of a tensor of 1 MiB."""
RARE = {
    "the order of threads changes the op's result": "on GPUs",
    "a CUDA graph writes it": "on GPUs",
    "the record cannot keep an argument of the op": "no op of PyTorch 2.13",
    "the random numbers cannot be drawn again": "a generator that another library implements",
    "the compiled graph has effects of its own": "test_compiled.py",
    "its record was dropped to bound the metadata": "needs 16 MiB of records",
    "an op on lists updated it in parts": "tests/torch, engine_in_parts_test.cpp",
    "an exit of the scope restored it": "after the exit",
    "a custom op made it, without recoup.allow_replay": "what it makes is made inside of it",
}
"""Reasons without a program here."""

library = torch.library.Library("reasons", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
library.define("kept(Tensor x) -> Tensor")
library.impl("kept", lambda x: torch.empty_like(x).copy_(x), "CPU")
outside = torch.ones(SIZE)


def least_squares() -> Any:
    return torch.linalg.lstsq(torch.randn(300, 100), torch.randn(300, 4))


def unwritten() -> Any:
    return torch.empty(SIZE)


def within_a_custom_op() -> Any:
    return torch.ops.reasons.twice(torch.ones(SIZE))


def in_the_layout_of_onednn() -> Any:
    return torch.randn(30, 30).to_mkldnn().relu().to_dense()


def resized() -> Any:
    values, indices = torch.ones(1), torch.zeros(2, dtype=torch.long)
    torch.topk(torch.randn(900), 2, out=(values, indices))
    return values, indices


def of_an_address() -> Any:
    x = torch.ones(SIZE) * 3
    x.data_ptr()
    return x, x * 2


def of_an_array() -> Any:
    x = torch.ones(SIZE) * 3
    x.numpy()
    return x


def part_of_a_tensor_from_outside() -> Any:
    outside[:5] = 1
    return outside


def moments() -> Any:
    net = nn.Linear(100, 100)
    adam = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        net(torch.randn(4, 100)).sum().backward()
        adam.step()
    return net, adam


def without_its_source() -> Any:
    x = torch.ones(SIZE) * 3
    x.numpy()
    x.add_(1)
    y = x.sin()
    x.add_(y)  # content that no record keeps
    del x
    return y


def after_a_failed_op() -> Any:
    x = torch.ones(SIZE) * 3
    with pytest.raises(IndexError):
        x.index_add_(0, torch.tensor([10 * SIZE]), torch.ones(1))
    return x


def small() -> Any:
    return torch.ones(4) + 1


def in_a_long_chain() -> Any:
    found = [torch.ones(SIZE)]
    for _ in range(9):
        found.append(found[-1] + 1)
    return found


def larger_than_the_budget() -> Any:
    return torch.randn(SIZE)[:, None] * torch.ones(64)


PROGRAMS: list[tuple[Callable[[], Any], str, dict[str, Any]]] = [
    (least_squares, "the op may give other results when it runs again", {}),
    (unwritten, "its memory is uninitialized", {}),
    (within_a_custom_op, "it was made inside a custom op", {}),
    (in_the_layout_of_onednn, "the op read a tensor whose bytes recoup does not know", {}),
    (resized, "the op gave a tensor other memory, or returned memory that it did not make", {}),
    (of_an_address, "it was computed from a tensor that other code can write", {}),
    (of_an_array, "its address was taken", {}),
    (
        part_of_a_tensor_from_outside,
        "a part was written, and its former content is non-recomputable",
        {},
    ),
    (moments, "state that is updated in place", {}),
    (without_its_source, "the content that it was computed from is gone", {}),
    (after_a_failed_op, "an op that failed may have written it", {}),
    (small, "it is too small to be recorded", {"small_result_bytes": 64}),
    (in_a_long_chain, "its lineage is longer than max_depth", {"max_depth": 3}),
    (
        larger_than_the_budget,
        "memory of the op did not fit in the budget",
        {"budget": "32MiB", "page_window": "16MiB"},
    ),
]


def reasons(program: Callable[[], Any], budget: str = "64MiB", **options: Any) -> set[str]:
    """The reasons of all values that cannot be evicted while the program's result is alive."""
    options.setdefault("small_result_bytes", 0)
    with recoup.budget(budget, options=recoup.Options(**options)) as run:
        _kept = program()
        return {row.why for row in run.pinned()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("program", "reason", "options"), PROGRAMS, ids=[row[0].__name__ for row in PROGRAMS]
)
def test_a_value_has_its_reason(
    program: Callable[[], Any], reason: str, options: dict[str, Any]
) -> None:
    assert reason in reasons(program, **options)


def test_every_reason_has_a_program() -> None:
    listed = set(re.findall(r'return "(.*?)";', SOURCE.read_text(encoding="utf-8")))
    shown = {reason for _, reason, _ in PROGRAMS}
    assert listed == shown | RARE.keys()
    assert not shown & RARE.keys()


# ---- addresses ----


@pytest.fixture
def warned() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default", recoup.RecoupWarning)
        yield found


def line_of(text: str) -> str:
    """'FILE:LINE' of the first line of this file with the text."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{__file__}:{1 + next(i for i, line in enumerate(lines) if text in line)}"


def test_the_line_that_took_an_address_is_reported_and_warned_of_once(
    warned: list[warnings.WarningMessage],
) -> None:
    with recoup.budget("64MiB") as run:
        net = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
        for parameter in net.parameters():
            parameter.data_ptr()  # the line
        rows = [row for row in run.pinned() if row.by == "escape"]
        text = run.report()
    where = line_of("data_ptr()  # the line")
    assert len(rows) == 8
    assert {row.why.partition(" (")[0] for row in rows} == {f"{TAKEN_AT} {where}"}
    assert where in text
    [warning] = [each for each in warned if "address is taken here" in str(each.message)]
    assert f"{warning.filename}:{warning.lineno}" == where


def test_reading_the_bytes_in_another_way_is_not_warned_of(
    warned: list[warnings.WarningMessage],
) -> None:
    with recoup.budget("64MiB") as run:
        x = torch.ones(SIZE) * 3
        x.cpu(), x.tolist(), x.numpy().sum(), x.untyped_storage()._cdata
        y = x * 2
        assert recoup.evict(y)
        assert not [row for row in run.pinned() if row.by == "escape"]
    assert not warned


def test_no_scope_means_no_warning(warned: list[warnings.WarningMessage]) -> None:
    x = torch.ones(8)
    x.data_ptr()
    with recoup.budget("64MiB"):
        pass
    x.data_ptr()
    assert not warned


def test_the_error_names_the_lines_that_took_addresses() -> None:
    with pytest.raises(recoup.OutOfBudgetError) as caught, recoup.budget("9MiB") as run:
        net = nn.Linear(512, 512)
        net.weight.data_ptr()  # of the error
        x = torch.randn(2048, 512)
        _kept = [net(x) for _ in range(5)]
    where = line_of("data_ptr()  # of the error")
    [failure] = run.failures()
    assert failure.taken.startswith("The program took the address of 1 tensor, 1.0 MiB, at ")
    assert where in failure.taken
    assert failure.taken in failure.help
    if hasattr(caught.value, "__notes__"):
        assert failure.taken in caught.value.__notes__


def test_an_address_without_a_known_line_is_not_named_as_a_line() -> None:
    """Code below Python takes it, or recoup has no line for it."""
    row = recoup.PinnedValue(bytes=1, by="escape", op="", why="its address was taken")
    error = recoup.OutOfBudgetError("no room")
    failure = failure_of(error, "body", None, lambda: [row])
    assert failure is not None
    assert failure.taken == ""
