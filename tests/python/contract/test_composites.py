"""Tensors of several buffers: their parts are rematerialized, charged and written."""

from collections.abc import Callable

import pytest
import torch
import torch.nn as nn

import recoup
from differential import Hand, N, both, made

Parts = tuple[torch.Tensor, list[torch.Tensor]]


def _coo() -> Parts:
    indices = torch.arange(N).reshape(1, N) * 1
    values = made()
    return torch.sparse_coo_tensor(indices, values, (N,)), [indices, values]


def _compressed(make: Callable[..., torch.Tensor], block: int) -> Parts:
    side = N // block
    offsets, indices = torch.arange(side + 1) * 1, torch.arange(side) * 1
    values = made() if block == 1 else made().reshape(side, block, 1).expand(-1, -1, block) * 1
    return make(offsets, indices, values, (N, N)), [offsets, indices, values]


def _nested() -> Parts:
    whole = torch.nested.nested_tensor(
        [made()[:600].reshape(20, 30), made(3)[:300].reshape(10, 30)]
    )
    return whole, []


def _jagged() -> Parts:
    values, offsets = made().reshape(N // 4, 4) * 1, torch.arange(0, N // 4 + 1, 8) * 1
    return torch.nested.nested_tensor_from_jagged(values, offsets), [values, offsets]


def _per_channel() -> Parts:
    scales, zeros = made().abs() + 0.1, torch.zeros(N, dtype=torch.long) + 1
    whole = torch.quantize_per_channel(made().reshape(N, 1), scales, zeros, 0, torch.qint8)
    return whole, [scales, zeros]


def _per_tensor() -> Parts:
    return torch.quantize_per_tensor(made(), 0.1, 0, torch.qint8), []


LAYOUTS: dict[str, Callable[[], Parts]] = {
    "coo": _coo,
    "csr": lambda: _compressed(torch.sparse_csr_tensor, 1),
    "csc": lambda: _compressed(torch.sparse_csc_tensor, 1),
    "bsr": lambda: _compressed(torch.sparse_bsr_tensor, 2),
    "bsc": lambda: _compressed(torch.sparse_bsc_tensor, 2),
    "nested": _nested,
    "jagged": _jagged,
    "per channel": _per_channel,
    "per tensor": _per_tensor,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_op_on_the_whole_rematerializes_its_parts(layout: str) -> None:
    """The evicted parts are those that the whole tensor is made of."""

    def program(hand: Hand) -> object:
        whole, parts = LAYOUTS[layout]()
        for _ in range(3):
            hand.try_evict(*parts)
            litter = [made(i) for i in range(200)]  # overwrites the former memory of the parts
            del litter
            hand.see(whole.clone())
        return whole, parts

    both(program, "1MiB", policy="lru")


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc", "nested", "jagged"])
def test_a_write_to_the_whole_is_a_write_to_its_parts(layout: str) -> None:
    """Values computed before the write keep a part's old content; later values see the write."""

    def program(hand: Hand) -> object:
        whole, parts = LAYOUTS[layout]()
        if layout == "nested":
            parts = list(whole.unbind())
        before = [part * 2 for part in parts]
        hand.try_evict(*before)
        whole.mul_(3)
        hand.try_evict(*before, *parts)
        after = [part * 2 for part in parts]
        litter = [made(i) for i in range(200)]
        del litter
        hand.try_evict(*after)
        return whole, parts, before, after

    both(program, "1MiB", policy="lru")


@pytest.mark.parametrize("policy", ["recoup", "lru", "largest"])
def test_sparse_training(policy: str) -> None:
    def program(hand: Hand) -> object:
        torch.manual_seed(0)
        table = nn.Embedding(5000, 16, sparse=True)
        optimizer = torch.optim.SparseAdam(list(table.parameters()))
        weight = torch.randn(16, 16)
        for _ in range(3):
            h = table(torch.randint(0, 5000, (2000,)))
            for _ in range(8):
                h = (h @ weight).tanh()
            optimizer.zero_grad()
            h.square().sum().backward()
            optimizer.step()
        return table.weight.detach()

    assert both(program, "2MiB", policy=policy).evictions > 0


def test_packed_weights_keep_their_bias_resident() -> None:
    torch.backends.quantized.engine = "x86"

    def program(hand: Hand) -> object:
        weight = torch.quantize_per_tensor(made().reshape(64, 16) * 1, 0.1, 0, torch.qint8)
        bias = made()[:64] * 2
        hand.try_evict(bias)
        packed = torch.ops.quantized.linear_prepack(weight, bias)
        hand.assert_non_recomputable(bias)  # the packed object holds it
        del bias
        litter = [made(i) for i in range(200)]
        del litter
        x = torch.quantize_per_tensor(made().reshape(64, 16), 0.1, 0, torch.quint8)
        return torch.ops.quantized.linear(x, packed, 0.1, 0)

    both(program, "1MiB")


def test_onednn_layouts_stay_readable() -> None:
    def program(hand: Hand) -> object:
        blocked = made().reshape(1, 4, 16, 16).to_mkldnn()
        litter = [made(i) for i in range(200)]
        del litter
        return torch.relu(blocked).to_dense()

    both(program, "1MiB")


@pytest.mark.parametrize("policy", ["recoup", "lru", "largest"])
@pytest.mark.parametrize("aids", ["", "poison,shake"])
def test_sizes_of_nested_tensors_are_not_evicted(
    policy: str, aids: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch reads them by pointer, without an op."""
    monkeypatch.setenv("RECOUP_TEST_AIDS", aids)

    def program(hand: Hand) -> object:
        linear = nn.Linear(4, 4)
        nested = torch.nested.nested_tensor([torch.randn(1 + n % 7, 4) for n in range(300)])
        with torch.no_grad():
            results = [linear(nested), nested.reshape(300, -1, 2, 2), nested.transpose(1, 2)]
        litter = [made(i) for i in range(400)]
        del litter
        for result in results:
            hand.see(torch.tensor([result.numel(), result.size(0), result.is_contiguous()]))
            hand.see(result.contiguous())
        return results[0]

    both(program, "1MiB", policy=policy)


def test_parts_from_outside_are_charged() -> None:
    """The values of a sparse tensor from outside are charged when an op uses the whole."""
    whole = torch.sparse_coo_tensor(torch.arange(1 << 18).reshape(1, -1), torch.ones(1 << 18))
    with recoup.budget("16MiB") as run:
        whole.mul_(2)
        assert run.stats().external_bytes >= (1 << 18) * (8 + 4)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.parametrize("make", [torch.empty_like, torch.zeros_like, lambda x: x.sin()])
def test_indices_of_evicted_tensors_are_copied(
    layout: torch.layout, make: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Ops that read only shapes of a strided tensor read the indices of a sparse one."""

    def program() -> list[torch.Tensor]:
        x = torch.eye(40, 50).mul(3).to_sparse(layout=layout).sin()
        y = make(x.detach())
        shape = torch.tensor([*y.shape, y._nnz()])
        if layout == torch.sparse_coo:
            return [shape, y._indices()]
        rows = y.crow_indices() if layout == torch.sparse_csr else y.ccol_indices()
        return [shape, rows]

    plain = program()
    with recoup.budget("16MiB", options=recoup.Options(evict_after_op=True)) as run:
        found = [each.clone() for each in program()]
    assert run.stats().evictions > 0
    assert all(map(torch.equal, found, plain))


# ---- ops on composite tensors are replayed ----


def _ragged() -> torch.Tensor:
    return torch.nested.nested_tensor([made()[:600].reshape(20, 30), made(3)[:300].reshape(10, 30)])


def _blocks(layout: torch.layout) -> torch.Tensor:
    return made()[:256].reshape(16, 16).mul(3).to_sparse(layout=layout, blocksize=(4, 4))


def _channels(zeros: torch.Tensor) -> torch.Tensor:
    scales = torch.linspace(0.01, 0.2, 16) * 2
    return torch.quantize_per_channel(made()[:256].reshape(16, 16), scales, zeros, 0, torch.quint8)


PROGRAMS: dict[str, Callable[[], list[torch.Tensor]]] = {
    "nested, linear": lambda: [
        torch.nested.to_padded_tensor(nn.functional.linear(_ragged() * 2, torch.eye(30) * 3), 0.0)
    ],
    "nested, attention": lambda: [
        torch.nested.to_padded_tensor(
            torch.softmax(torch.matmul(each := _ragged() * 2, each.transpose(1, 2)), -1), 1.0
        )
    ],
    "nested, parts": lambda: [*(_ragged() * 3).unbind(), (_ragged() * 3)[1]],
    "nested, empty part": lambda: [
        (torch.nested.nested_tensor([torch.zeros(0, 4), torch.ones(3, 4)]) * 2)[1]
    ],
    "bsr": lambda: [(each := _blocks(torch.sparse_bsr)).to_dense(), (each + each).to_dense()],
    # Adding a BSC tensor works only if both arguments are the same tensor.
    "bsc": lambda: [(each := _blocks(torch.sparse_bsc)).to_dense(), (each + each).to_dense()],
    "bsc, transposed": lambda: [_blocks(torch.sparse_bsc).transpose(0, 1).to_dense()],
    "per channel": lambda: [
        (each := _channels(torch.ones(16, dtype=torch.long) * 2)).dequantize(),
        each.int_repr(),
        each.q_per_channel_scales() * 2,
        each.clone().dequantize(),
    ],
    "per channel, float zero points": lambda: [
        _channels(torch.linspace(0, 1, 16) * 2).dequantize()
    ],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("one_and_two_threads")
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_on_composites_are_replayed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOUP_TEST_AIDS", "poison,shake")
    plain = PROGRAMS[name]()
    options = recoup.Options(evict_after_op=True, small_result_bytes=0)
    with recoup.budget("64MiB", options=options) as run:
        found = PROGRAMS[name]()
        assert not any(map(recoup.is_resident, found))
    assert run.stats().replays > 0
    assert all(map(torch.equal, found, plain))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy", ["recoup", "lru", "largest"])
def test_training_on_nested_tensors(policy: str) -> None:
    def program(hand: Hand) -> object:
        torch.manual_seed(0)
        net = nn.Sequential(*(nn.Linear(32, 32) for _ in range(6)))
        sgd = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(3):
            x = torch.nested.nested_tensor([torch.randn(100 + 9 * step * i, 32) for i in range(8)])
            for layer in net:
                x = nn.functional.gelu(layer(x))
            torch.nested.to_padded_tensor(x, 0.0).square().mean().backward()
            sgd.step()
            sgd.zero_grad()
        return [each.detach() for each in net.parameters()]

    assert both(program, "2MiB", policy=policy).replays > 0
