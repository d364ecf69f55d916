"""Opaque ops: kernels that are not ATen's own, and composites that read bytes by pointer."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import recoup
from differential import Hand, N, both, made
from torch_versions import read_lines

_KEPT: dict[str, torch.Tensor] = {}


@torch.library.custom_op("recoup_opaque::average", mutates_args=())
def average(x: torch.Tensor) -> torch.Tensor:
    _KEPT["mean"].mul_(0.5).add_(x, alpha=0.5)
    return x * 1


@torch.library.custom_op("recoup_opaque::product", mutates_args=())
def product(x: torch.Tensor) -> torch.Tensor:
    return x * _KEPT["weight"] + _KEPT["weight"].sum()


@torch.library.custom_op("recoup_opaque::scale", mutates_args={"x"})
def scale(x: torch.Tensor, by: float) -> None:
    array = x.numpy()  # by pointer, without an op
    made_inside = torch.empty(4 * N).fill_(by)  # making room for this must not move x
    array *= made_inside[:N].numpy()


@torch.library.custom_op("recoup_opaque::nests", mutates_args=())
def nests(x: torch.Tensor) -> torch.Tensor:
    inner = average(x) + product(x)
    litter = [inner * i for i in range(20)]
    return inner + litter[-1]


@pytest.mark.parametrize("policy", ["recoup", "lru", "largest", "random"])
def test_a_write_to_a_captured_tensor_makes_a_version(policy: str) -> None:
    def program(hand: Hand) -> object:
        _KEPT["mean"] = torch.ones(N) + 0
        before = _KEPT["mean"] * 2
        hand.try_evict(before, _KEPT["mean"])
        y = average(made())
        litter = [made(i) for i in range(100)]
        del litter
        hand.try_evict(_KEPT["mean"], before)
        return before, y, _KEPT["mean"]

    both(program, "256KiB", policy=policy)


@pytest.mark.parametrize("policy", ["recoup", "lru", "largest", "random"])
def test_a_captured_tensor_is_rematerialized(policy: str) -> None:
    def program(hand: Hand) -> object:
        _KEPT["weight"] = made() * 3
        litter = [made(i) for i in range(100)]
        del litter
        hand.try_evict(_KEPT["weight"])
        return product(made(2)), _KEPT["weight"]

    both(program, "256KiB", policy=policy)


def test_a_declared_write_by_pointer_makes_a_version() -> None:
    def program(hand: Hand) -> object:
        x = made()
        before = x + 1
        hand.try_evict(before, x)
        scale(x, 3.0)
        after = x + 1
        litter = [made(i) for i in range(100)]
        del litter
        hand.try_evict(before, after)
        return before, after, x

    both(program, "256KiB", policy="lru")


def test_opaque_ops_in_opaque_ops() -> None:
    def program(hand: Hand) -> object:
        _KEPT["mean"], _KEPT["weight"] = torch.ones(N) + 0, made(2) * 1
        hand.try_evict(*_KEPT.values())
        return nests(made()), dict(_KEPT)

    both(program, "512KiB", policy="lru")


def test_values_that_an_opaque_op_held_are_released() -> None:
    """After it has returned its arguments may be evicted again, and its results may move."""
    with recoup.budget("8MiB", options=recoup.Options(small_result_bytes=0)) as run:
        _KEPT["weight"] = made()
        x = made()
        y = product(x)
        assert recoup.evict(x) and recoup.evict(_KEPT["weight"])
        run.check()
        assert not [row for row in run.pinned() if row.by == "pin"]
        del y


def test_a_failed_opaque_op_holds_nothing() -> None:
    @torch.library.custom_op("recoup_opaque::fails", mutates_args=())
    def fails(x: torch.Tensor) -> torch.Tensor:
        (x * 2).sum()
        raise ValueError("on purpose")

    with recoup.budget("8MiB", options=recoup.Options(small_result_bytes=0)) as run:
        x = made()
        with pytest.raises(ValueError, match="on purpose"):
            fails(x)
        assert recoup.evict(x)
        run.check()


def test_an_opaque_op_with_autograd() -> None:
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @torch.library.custom_op("recoup_opaque::half_square", mutates_args=())
    def half_square(x: torch.Tensor) -> torch.Tensor:
        return x * x / 2

    half_square.register_autograd(backward, setup_context=setup)

    def program(hand: Hand) -> object:
        x = made().requires_grad_()
        y = half_square(x * 2).tanh()
        hand.try_evict(y)
        y.sum().backward()
        return x.grad, y.detach()

    both(program, "256KiB", policy="lru")


# ---- composites of ATen that hold pointers ----


def _packed(cell: str) -> Any:
    def program(hand: Hand) -> object:
        torch.manual_seed(0)
        rnn = getattr(nn, cell)(4, 8, bidirectional=True)
        sequences = [torch.randn(k, 4) for k in (5, 4, 4, 2)]
        packed = nn.utils.rnn.pack_sequence([s * 1 for s in sequences])
        y, lengths = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0])
        y.square().mean().backward()
        return y.detach(), lengths, [p.grad for p in rnn.parameters()]

    return program


def _ctc(hand: Hand) -> object:
    torch.manual_seed(0)
    scores = torch.randn(50, 8, 20).log_softmax(2).requires_grad_()
    targets = torch.randint(1, 20, (8, 30))
    lengths, wanted = torch.full((8,), 50) * 1, torch.randint(10, 30, (8,)) * 1
    hand.try_evict(targets, lengths, wanted)
    loss = F.ctc_loss(scores, targets, lengths, wanted)
    loss.backward()
    return loss.detach(), scores.grad


def _split(hand: Hand) -> object:
    cuts = torch.arange(1, 300, 3) * 1
    hand.try_evict(cuts)
    return torch.tensor_split(made() * 2, cuts)


def _pool(hand: Hand) -> object:
    x = made().reshape(1, 4, N // 4) * 2
    with torch.no_grad():
        hand.try_evict(x)
        return F.max_pool1d(x, 3)


def _pool_in_inference(hand: Hand) -> object:
    with torch.inference_mode():
        x = made().reshape(1, 4, N // 4) * 2
        cuts = torch.arange(1, 900, 3) * 1
        hand.try_evict(x, cuts)
        return F.max_pool1d(x, 3), torch.tensor_split(x.reshape(-1), cuts)


def _sobol(hand: Hand) -> object:
    torch.manual_seed(0)
    engine = torch.quasirandom.SobolEngine(64, scramble=True)
    first = engine.draw(64)
    engine.fast_forward(7)
    return first, engine.draw(32)


POINTERS = {
    **{cell: _packed(cell) for cell in ("RNN", "LSTM", "GRU")},
    "ctc": _ctc,
    "split": _split,
    "pool": _pool,
    "pool in inference": _pool_in_inference,
    "sobol": _sobol,
}


@pytest.mark.parametrize("name", POINTERS)
@pytest.mark.parametrize("aids", ["", "poison,shake"])
def test_composites_that_hold_pointers(
    name: str, aids: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOUP_TEST_AIDS", aids)
    both(POINTERS[name], "16MiB")


# ---- names ----


def _schemas() -> dict[str, Any]:
    return {
        f"{s.name}.{s.overload_name}" if s.overload_name else s.name: s
        for s in torch._C._jit_get_all_schemas()
    }


def test_the_ops_that_the_tables_name_exist() -> None:
    """The installed PyTorch has every op and argument that recoup's tables name."""
    schemas = _schemas()
    bases = {name.partition(".")[0] for name in schemas}
    wrong = []
    for table, name, arguments in recoup._C.named_ops():
        if name not in schemas and name not in bases:
            wrong.append((table, name))
        for schema in schemas.values():
            if schema.name == name and schema.overload_name in ("", "out"):
                for position in arguments:
                    kind = (
                        str(schema.arguments[position].type)
                        if position < len(schema.arguments)
                        else "nothing"
                    )
                    if "Tensor" not in kind:
                        wrong.append((table, name, position, kind))
    assert not wrong


REVIEWED = Path(__file__).parent / "reviewed_composites.txt"


def _composites() -> list[str]:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return sorted(
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and has(name, "CompositeImplicitAutograd")
        and not has(name, "CPU")
    )


def test_every_composite_is_reviewed() -> None:
    """A new composite kernel may hold a pointer across the ops that it calls.

    Check whether it takes a tensor's address (`data_ptr`, `accessor`) and calls ops while it holds
    the address, or reads bytes without an op. If it does, add it to
    csrc/torch/compat/pointer_readers.cpp. In both cases add its name to reviewed_composites.txt.
    """
    composites, reviewed = set(_composites()), set(read_lines(REVIEWED))
    new, gone = composites - reviewed, reviewed - composites
    assert not new, f"not looked at yet: {', '.join(sorted(new))}"
    assert not gone, f"in the list, and no composites any more: {', '.join(sorted(gone))}"


def test_pointer_readers_are_composite() -> None:
    """So recoup's kernel that enters a reader is the only one on its autograd key."""
    readers = {name for table, name, _ in recoup._C.named_ops() if table == "pointer readers"}
    assert readers <= set(_composites())


@pytest.mark.parametrize("op", [torch.quantile, torch.nanquantile])
def test_quantiles_of_an_evicted_fraction(op: Any) -> None:
    """Since PyTorch 2.14 the kernel reads the fraction by pointer, to check its range."""
    x = torch.arange(15.0)
    expected = op(x, 0.4), op(x, torch.tensor([0.4]))
    with recoup.budget("1GiB", options=recoup.Options(evict_after_op=True, small_result_bytes=0)):
        fraction = torch.tensor([0.4]) + 0
        recoup.evict(fraction)
        found = op(x, 0.4), op(x, fraction)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
