"""A kernel that catches the error of an allocation gives no other bits: it is out of budget."""

from collections.abc import Iterator

import pytest
import torch

import recoup

MIB = 1 << 20
library = torch.library.Library("caught_errors", "FRAGMENT")


def two_ways(x: torch.Tensor) -> torch.Tensor:
    """As PyTorch's matrix product: if it lacks a workspace, it switches oneDNN off."""
    try:
        torch.empty(4 * MIB, dtype=torch.uint8)
    except RuntimeError:
        torch._C._set_mkldnn_enabled(False)
        return x + 2
    return x + 1


def other_error(x: torch.Tensor) -> torch.Tensor:
    try:
        return x + torch.ones(4 * MIB, dtype=torch.uint8)[0]
    except RuntimeError:
        raise KeyError("no workspace") from None


def changes_settings(x: torch.Tensor) -> torch.Tensor:
    with torch.backends.mkldnn.flags(enabled=False):
        return x + torch.ones(4 * MIB, dtype=torch.uint8)[0]


library.define("changes_settings(Tensor x) -> Tensor")
library.impl("changes_settings", changes_settings, "CPU")
recoup.allow_replay("caught_errors::changes_settings")
library.define("two_ways(Tensor x) -> Tensor")
library.define("other_error(Tensor x) -> Tensor")
library.impl("two_ways", two_ways, "CPU")
library.impl("other_error", other_error, "CPU")
recoup.allow_replay("caught_errors::two_ways")
recoup.allow_replay("caught_errors::other_error")


@pytest.fixture(autouse=True)
def onednn_stays_on() -> Iterator[None]:
    assert torch._C._get_mkldnn_enabled()
    yield
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(True)
    assert enabled


@pytest.mark.parametrize("name", ["two_ways", "other_error", "changes_settings"])
def test_the_op_is_out_of_budget(name: str) -> None:
    op = getattr(torch.ops.caught_errors, name)
    with recoup.budget("4MiB"):
        x = torch.ones(MIB // 4)
        with pytest.raises(recoup.OutOfBudgetError, match=name):
            op(x)
        assert float(x.sum()) == MIB // 4
    with recoup.budget("16MiB"):
        assert float(op(torch.ones(4)).sum()) == 8


def test_a_replay_is_out_of_budget() -> None:
    with recoup.budget("16MiB") as run:
        y = torch.ops.caught_errors.two_ways(torch.ones(MIB // 4))
        assert recoup.evict(y)
        kept = torch.ones(3 * MIB)  # 12 MiB
        with recoup.pin(kept), pytest.raises(recoup.OutOfBudgetError):
            y.sum()
        del kept
        assert float(y[0]) == 2
        assert run.stats().replays > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_matrix_products_near_the_least_budget(dtype: torch.dtype) -> None:
    def products() -> list[torch.Tensor]:
        torch.manual_seed(0)
        a, b = torch.randn(300, 400).to(dtype), torch.randn(400, 350).to(dtype)
        c = torch.mm(a.t()[::2].t(), b[::2])
        return [c, torch.mm(c.t(), a), torch.mm(c, c.t()[:, ::3])]

    plain = products()
    fitted = 0
    for kib in range(600, 3000, 40):
        try:
            with recoup.budget(f"{kib}KiB"):
                made = products()
        except recoup.OutOfBudgetError:
            continue
        fitted += 1
        assert all(map(torch.equal, made, plain))
    assert fitted > 10
