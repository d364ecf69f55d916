"""Programs that break methods which save memory by running Python code again.

Each program runs plainly, and with everything evictable evicted after every op. All results must
have the same bits, and the random number generator must end in the same state.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import recoup
from differential import Hand, Program, both, see


def same_bits(program: Program) -> recoup.Stats:
    stats = both(program, evict_after_op=True)
    assert stats.replays > 0
    assert isinstance(stats, recoup.Stats)
    return stats


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def mlp(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 64), *layers, nn.Linear(64, 32))


class EveryOtherCallDoubles(nn.Module):
    """Its result depends on the number of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x).tanh() * (2 if self.calls % 2 else 1)


def test_stateful_python_in_the_model() -> None:
    def program(hand: Hand) -> object:
        model = EveryOtherCallDoubles()
        x = torch.randn(8, 32)
        for _ in range(3):
            model(x).square().sum().backward()
        return model.calls, gradients(model)

    same_bits(program)

    # Shows that this program is hard: checkpoint returns another gradient without an error.
    torch.manual_seed(0)
    model = EveryOtherCallDoubles()
    x = torch.randn(8, 32)
    for _ in range(3):
        checkpoint(model, x, use_reentrant=False).square().sum().backward()
    torch.manual_seed(0)
    assert see([model.calls, gradients(model)]) != see(program(Hand()))


def test_batch_norm_statistics_are_updated_once() -> None:
    def program(hand: Hand) -> object:
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, momentum=None), nn.ReLU(), nn.Conv2d(8, 4, 3)
        )
        for _ in range(3):
            model(torch.randn(4, 3, 12, 12)).square().mean().backward()
            hand.see(dict(model.named_buffers()))
        model.eval()
        return model(torch.ones(2, 3, 12, 12)), model.state_dict(), gradients(model)

    same_bits(program)


@pytest.mark.parametrize(
    "noise", [nn.Dropout(0.3), nn.RReLU(), nn.AlphaDropout(0.2)], ids=lambda m: type(m).__name__
)
def test_noise_is_not_drawn_again(noise: nn.Module) -> None:
    def program(hand: Hand) -> object:
        model = mlp(noise, nn.Linear(64, 64), noise).train()
        x = torch.randn(16, 32, requires_grad=True)
        y = model(x)
        between = torch.rand(8)  # drawn between the noise and its next use
        y.square().sum().backward()
        return y, between, x.grad, gradients(model), torch.rand(8)

    same_bits(program)


class CachedAttention(nn.Module):
    """Attends to all tokens so far."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)
        self.keys = torch.zeros(0, 32)
        self.values = torch.zeros(0, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        self.keys = torch.cat([self.keys, k])
        self.values = torch.cat([self.values, v])
        return F.scaled_dot_product_attention(q[None], self.keys[None], self.values[None])[0]


def test_cache_that_grows_between_forward_and_backward() -> None:
    def program(hand: Hand) -> object:
        model = CachedAttention()
        loss = sum((model(torch.randn(4, 32)).square().sum() for _ in range(3)), torch.zeros(()))
        with torch.no_grad():
            later = model(torch.randn(4, 32))
        assert model.keys.shape == (16, 32)
        loss.backward()
        return loss, later, model.keys, model.values, gradients(model)

    same_bits(program)


def test_cache_that_is_written_in_place() -> None:
    def program(hand: Hand) -> object:
        project = nn.Linear(32, 32)
        cache = torch.zeros(16, 32)
        outputs = []
        with torch.no_grad():
            for step in range(16):
                cache[step] = project(torch.randn(32))
                outputs.append(cache[: step + 1].softmax(0).sum(0))
        return outputs, cache

    same_bits(program)


class Experts(nn.Module):
    """Routes each token to the expert with the highest noisy score."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 4)
        self.experts = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
        self.loads: list[list[int]] = []

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x) + 0.5 * torch.randn(x.shape[0], 4)
        weight, choice = scores.softmax(-1).max(-1)
        out = torch.zeros_like(x)
        self.loads.append(choice.bincount(minlength=4).tolist())
        for index, expert in enumerate(self.experts):
            tokens = torch.nonzero(choice == index)[:, 0]
            if len(tokens):
                out = out.index_add(0, tokens, expert(x[tokens]) * weight[tokens, None])
        return x + out


def test_mixture_of_experts_routes_once() -> None:
    def program(hand: Hand) -> object:
        model = nn.Sequential(Experts(), Experts())
        x = torch.randn(24, 32, requires_grad=True)
        y = model(x)
        y.square().sum().backward()
        return y, x.grad, gradients(model), [block.loads for block in model]

    same_bits(program)


class InPlaceBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(F.relu(self.first(x), inplace=True))
        y += x
        return F.relu_(y)


def test_an_in_place_op_at_the_end_of_a_block() -> None:
    def program(hand: Hand) -> object:
        model = nn.Sequential(*[InPlaceBlock() for _ in range(4)])
        x = torch.randn(16, 32)
        y = model(x)
        y.square().sum().backward()
        return y, gradients(model)

    same_bits(program)


def test_autocast() -> None:
    def program(hand: Hand) -> object:
        model = mlp(nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64))
        x = torch.randn(16, 32)
        with torch.autocast("cpu", torch.bfloat16):
            low = model(x)
            with torch.autocast("cpu", enabled=False):
                full = model(x)
        assert (low.dtype, full.dtype) == (torch.bfloat16, torch.float32)
        (low.float() * full).sum().backward()  # outside of autocast, as in usual programs
        return low, full, gradients(model)

    same_bits(program)


def test_retain_graph() -> None:
    def program(hand: Hand) -> object:
        model = mlp(nn.Tanh(), nn.Dropout(0.1))
        x = torch.randn(16, 32, requires_grad=True)
        y = model(x)
        y.sum().backward(retain_graph=True)
        hand.see(x.grad, gradients(model))
        (second,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True)
        y.prod(-1).sum().backward()
        return second, x.grad, gradients(model)

    same_bits(program)


def test_double_backward() -> None:
    def program(hand: Hand) -> object:
        model = mlp(nn.Tanh())
        x = torch.randn(16, 32, requires_grad=True)
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        slope.square().sum().backward()
        return slope, x.grad, gradients(model)

    same_bits(program)


def test_torch_func() -> None:
    def program(hand: Hand) -> object:
        model = mlp(nn.Tanh())
        weights = {name: p.detach() for name, p in model.named_parameters()}

        def run(weights: dict[str, Tensor], x: Tensor) -> Tensor:
            result: Tensor = torch.func.functional_call(model, weights, (x,))
            return result

        def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
            return run(weights, x).square().sum()

        x, direction = torch.randn(6, 32), torch.randn(6, 32)
        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
        value, tangent = torch.func.jvp(lambda x: run(weights, x), (x,), (direction,))
        jacobian = torch.func.jacrev(lambda x: run(weights, x))(x[0])
        curvature = torch.func.hessian(lambda x: run(weights, x).sum())(x[0])
        noisy = torch.func.vmap(lambda x: F.dropout(x), randomness="different")(x)
        return each, value, tangent, jacobian, curvature, noisy

    same_bits(program)


def test_hooks_on_gradients_and_modules() -> None:
    def program(hand: Hand) -> object:
        model = mlp(nn.Tanh())
        seen: list[Any] = []
        x = torch.randn(16, 32, requires_grad=True)
        model[0].register_forward_hook(lambda module, args, out: out * 1.5)
        model[0].register_full_backward_hook(lambda module, inner, outer: seen.append(outer))
        model[2].register_full_backward_pre_hook(lambda module, outer: (outer[0] * 2,))
        model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        y = model(x)
        y.register_hook(lambda gradient: gradient.clamp(-1, 1))
        y.square().sum().backward()
        return y, x.grad, gradients(model), seen

    same_bits(program)


def test_hooks_that_touch_saved_tensors() -> None:
    def program(hand: Hand) -> object:
        store: list[Tensor] = []

        def pack(tensor: Tensor) -> int:
            store.append(tensor.detach().to(torch.bfloat16))
            return len(store) - 1

        def unpack(index: int) -> Tensor:
            return store[index].float()

        model = mlp(nn.Tanh())
        x = torch.randn(16, 32, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            rough = model(x)
        with torch.autograd.graph.save_on_cpu():
            exact = model(x)
        (rough + exact).square().sum().backward()
        return rough, exact, x.grad, gradients(model), store

    same_bits(program)


def test_data_dependent_sizes() -> None:
    def program(hand: Hand) -> object:
        x = torch.randn(64, 32, requires_grad=True)
        positive = x.masked_select(x > 0)
        where = torch.nonzero(x.detach() > 1)
        values, inverse, counts = x.detach().round().unique(return_inverse=True, return_counts=True)
        rows = x[x.detach().sum(1) > 0]
        parts = rows.split([len(rows) // 2, len(rows) - len(rows) // 2])
        (positive.square().sum() + parts[0].exp().sum() + parts[1].sin().sum()).backward()
        return positive, where, values, inverse, counts, rows, x.grad

    same_bits(program)


def test_parameters_keep_their_identity() -> None:
    def program(hand: Hand) -> object:
        model = mlp(nn.Tanh())
        optimizer = torch.optim.AdamW(model.parameters())
        parameters = list(model.parameters())
        ids = [id(p) for p in parameters]
        kept: list[Tensor | None] = []
        for step in range(3):
            model(torch.randn(16, 32)).square().sum().backward()
            if step == 0:
                kept = [p.grad for p in parameters]
            assert all(p.grad is grad for p, grad in zip(parameters, kept, strict=True))
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        assert [id(p) for p in model.parameters()] == ids
        assert [id(p) for p in optimizer.state] == ids
        assert all(type(p) is nn.Parameter and p.is_leaf for p in parameters)
        return model.state_dict(), optimizer.state_dict()

    same_bits(program)
