"""Programs of kinds that public code contains. Each returns all that it has computed."""

import functools
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

ROWS, WIDTH, STEPS = 512, 128, 3
"""A tensor of ROWS x WIDTH elements is above PyTorch's grain size, so two threads share its ops."""


def mlp(depth: int = 4) -> nn.Sequential:
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(depth)]
    return nn.Sequential(*layers)


def state_of(model: nn.Module) -> list[Tensor]:
    return [each.detach() for each in model.state_dict().values()]


def trained(
    model: nn.Module, loss_of: Callable[[], Tensor], optimizer: torch.optim.Optimizer | None = None
) -> list[Tensor]:
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *state_of(model)]


def per_sample_gradients() -> list[Tensor]:
    model, x = mlp(2), torch.randn(64, WIDTH)
    parameters = {name: each.detach() for name, each in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(model, parameters, (row,)).square().sum()

    each = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    return [*each.values(), *(g.mean(0) for g in each.values())]


def jacobians_and_products() -> list[Tensor]:
    model, x, direction = mlp(2), torch.randn(32, WIDTH), torch.randn(32, WIDTH)
    energy = lambda y: model(y).tanh().square().sum()  # noqa: E731
    _, product = jvp(grad(energy), (x,), (direction,))
    jacobian = vmap(jacrev(lambda row: model(row)[:8]))(x)
    return [product, jacobian]


def ensemble() -> list[Tensor]:
    models = [mlp(2) for _ in range(4)]
    parameters, buffers = stack_module_state(models)  # type: ignore[arg-type]
    x = torch.randn(ROWS, WIDTH)

    def call(parameters: Any, buffers: Any) -> Tensor:
        result: Tensor = functional_call(models[0], (parameters, buffers), (x,))
        return result

    outputs = vmap(call, randomness="different")(parameters, buffers)
    outputs.square().mean().backward()
    return [outputs.detach(), *(each.grad for each in parameters.values())]


def packed_sequences() -> list[Tensor]:
    lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, bidirectional=True, batch_first=True)
    x, lengths = torch.randn(8, 12, WIDTH), torch.randint(1, 13, (8,))

    def loss() -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
        return padded.square().sum()

    return trained(lstm, loss)


def averaged_weights() -> list[Tensor]:
    model = nn.Sequential(mlp(2), nn.BatchNorm1d(WIDTH), mlp(1))
    averages = [
        AveragedModel(model),
        AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)),
    ]
    x = torch.randn(ROWS, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        for average in averages:
            average.update_parameters(model)
    update_bn([x, x + 1], averages[0])
    return [*state_of(model), *(each for average in averages for each in state_of(average))]


def memory_mapped_data() -> list[Tensor]:
    model = mlp()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data"
        torch.randn(STEPS * ROWS, WIDTH).numpy().tofile(file)
        mapped = torch.from_numpy(np.memmap(file, np.float32, "r+", shape=(STEPS * ROWS, WIDTH)))
        shared = torch.from_file(str(file), shared=True, size=STEPS * ROWS * WIDTH)
        batches = iter(mapped.split(ROWS))
        found = trained(model, lambda: model(next(batches)).square().mean())
        mapped[:ROWS].mul_(2)  # writes the file
        return [*found, shared.view(-1, WIDTH)[: 2 * ROWS].clone(), shared.sum()]


def signals_in_backward() -> list[Tensor]:
    """A handler interrupts two of the backward passes; the program goes on."""
    model, x = mlp(), torch.randn(ROWS, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    class InterruptError(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise InterruptError

    before = signal.signal(signal.SIGUSR1, interrupt)
    losses = []
    try:
        for step in range(STEPS + 2):
            optimizer.zero_grad()
            hidden = model[:2](x)
            if step % 2 == 1:
                hidden.register_hook(lambda _: signal.raise_signal(signal.SIGUSR1))
            loss = model[2:](hidden).square().mean()
            try:
                loss.backward()
                optimizer.step()
            except InterruptError:
                losses.append(torch.zeros(()))
            losses.append(loss.detach())
            del loss, hidden
    finally:
        signal.signal(signal.SIGUSR1, before)
    gradients = [torch.zeros(()) if p.grad is None else p.grad for p in model.parameters()]
    return [*losses, *state_of(model), *gradients]


def gradient_penalty() -> list[Tensor]:
    critic, real, fake = mlp(3), torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)

    def loss() -> Tensor:
        mixed = torch.lerp(real, fake, torch.rand(ROWS, 1)).requires_grad_()
        (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        return critic(fake).mean() - critic(real).mean() + 10 * penalty

    return trained(critic, loss)


def parametrized_weights() -> list[Tensor]:
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
        nn.Tanh(),
        parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
        nn.Tanh(),
        parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH)),
    )
    x = torch.randn(ROWS, WIDTH)
    return trained(model, lambda: model(x).square().mean())


def sparse_embeddings() -> list[Tensor]:
    words, bag = nn.Embedding(5000, WIDTH, sparse=True), nn.EmbeddingBag(5000, WIDTH, mode="sum")
    ids = torch.randint(5000, (ROWS, 8))
    optimizers = [
        torch.optim.SparseAdam(list(words.parameters()), lr=0.1),
        torch.optim.SGD(bag.parameters(), lr=0.1),
    ]
    losses = []
    for _ in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = (words(ids).mean(1).tanh() * bag(ids).sigmoid()).sum()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.detach())
    return [*losses, *state_of(words), *state_of(bag)]


def jagged_sequences() -> list[Tensor]:
    parts = [torch.randn(int(n), WIDTH) for n in torch.randint(4, 64, (12,))]
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def loss() -> Tensor:
        x = torch.nested.nested_tensor(parts, layout=torch.jagged)
        return (model(x) * x).values().square().mean()

    return trained(model, loss)


def spectral_convolution() -> list[Tensor]:
    weight = nn.Parameter(torch.randn(33, 32, 32, dtype=torch.complex64) * 0.1)
    holder = nn.ParameterList([weight])
    x = torch.randn(64, 32, 64)

    def loss() -> Tensor:
        y = x
        for _ in range(4):
            modes = torch.einsum("bcf,fcd->bdf", torch.fft.rfft(y), weight)
            y = torch.fft.irfft(modes, n=64).tanh()
        return y.square().mean()

    return trained(holder, loss, torch.optim.SGD([weight], lr=0.1))


def beam_search() -> list[Tensor]:
    embed, out = nn.Embedding(64, WIDTH), nn.Linear(WIDTH, 64)
    scores, beams = torch.zeros(128, 4), torch.zeros(128, 4, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(8):
            logits = out(embed(beams).mean(2)).log_softmax(-1)
            scores, best = (scores[..., None] + logits).flatten(1).topk(4)
            beams = torch.cat([beams.gather(1, (best // 64)[..., None].expand_as(beams)),
                               (best % 64)[..., None]], 2)  # fmt: skip
            if scores.max().item() > 0:
                break
    return [scores, beams]


def packed_saved_tensors() -> list[Tensor]:
    model, x = mlp(), torch.randn(ROWS, WIDTH)
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda t: (t.device, t.half().numpy().tobytes(), t.shape),
        lambda p: torch.frombuffer(bytearray(p[1]), dtype=torch.half).view(p[2]).float(),
    )

    def loss() -> Tensor:
        with hooks:
            result: Tensor = model(x).square().mean()
        return result

    return trained(model, loss)


class InPlaceSwish(torch.autograd.Function):
    """Keeps its input in half precision, and overwrites it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x.half())
        ctx.mark_dirty(x)
        return x.mul_(torch.sigmoid(x))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (half,) = ctx.saved_tensors
        gate = torch.sigmoid(half.float())
        return gradient * gate * (1 + half.float() * (1 - gate))


def in_place_function() -> list[Tensor]:
    layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
    x = torch.randn(ROWS, WIDTH)

    def loss() -> Tensor:
        swish: Callable[[Tensor], Tensor] = InPlaceSwish.apply  # type: ignore[assignment]
        y = functools.reduce(lambda y, layer: swish(layer(y)), layers, x)
        return y.square().mean()

    return trained(layers, loss)


def second_order_optimizer() -> list[Tensor]:
    model, x = mlp(2), torch.randn(ROWS, WIDTH)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).square().mean()
        loss.backward()
        return loss

    losses = [torch.as_tensor(optimizer.step(closure)).detach() for _ in range(2)]
    return [*losses, *state_of(model)]


def fake_quantization() -> list[Tensor]:
    model, x = mlp(2), torch.randn(ROWS, WIDTH)
    scale, zero = torch.full((WIDTH,), 0.05), torch.zeros(WIDTH, dtype=torch.int32)

    def loss() -> Tensor:
        y = torch.fake_quantize_per_channel_affine(model(x), scale, zero, 1, -128, 127)
        return torch.fake_quantize_per_tensor_affine(y * 2, 0.1, 0, -128, 127).square().mean()

    return trained(model, loss)


def speech() -> list[Tensor]:
    model = nn.Sequential(nn.Conv1d(WIDTH, WIDTH, 5, padding=2), nn.GELU(), nn.Conv1d(WIDTH, 32, 1))
    x, targets = torch.randn(8, WIDTH, 100), torch.randint(1, 32, (8, 20))
    lengths, sizes = torch.full((8,), 100), torch.randint(5, 21, (8,))

    def loss() -> Tensor:
        return F.ctc_loss(model(x).permute(2, 0, 1).log_softmax(-1), targets, lengths, sizes)

    return trained(model, loss)


def message_passing() -> list[Tensor]:
    layers = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(3))
    x, (source, target) = torch.randn(ROWS, WIDTH), torch.randint(ROWS, (2, 4 * ROWS))

    def loss() -> Tensor:
        y = x
        for layer in layers:
            sums = torch.zeros_like(y).index_add_(0, target, y[source])
            most = torch.full_like(y, -1.0).scatter_reduce_(
                0, target[:, None].expand(-1, WIDTH), y[source], "amax"
            )
            y = F.relu(layer(torch.cat([sums, most], 1)), inplace=True)
        return y.square().mean()

    return trained(layers, loss)


IDIOMS: dict[str, Callable[[], list[Tensor]]] = {
    each.__name__: each
    for each in (
        per_sample_gradients, jacobians_and_products, ensemble, packed_sequences, averaged_weights,
        memory_mapped_data, signals_in_backward, gradient_penalty, parametrized_weights,
        sparse_embeddings, jagged_sequences, spectral_convolution, beam_search,
        packed_saved_tensors, in_place_function, second_order_optimizer, fake_quantization, speech,
        message_passing,
    )
}  # fmt: skip
