"""Programs with a deep lineage, or with saved values that outlive a step.

Each returns the tensors that are compared between a run in a budget and plain PyTorch.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Program = Callable[[], list[Tensor]]

WIDTH, BATCH, INPUTS, WORDS = 64, 64, 32, 50


def _results(module: nn.Module, losses: Iterable[Tensor]) -> list[Tensor]:
    return [*(loss.detach() for loss in losses), *(p.detach() for p in module.parameters())]


def _update(loss: Tensor, updates: torch.optim.Optimizer, retain: bool) -> Tensor:
    loss.backward(retain_graph=retain)
    updates.step()
    updates.zero_grad()
    return loss.detach()


def _retained(length: int, width: int, optimizer: type[torch.optim.Optimizer]) -> Program:
    """The graph of a step is still alive when the optimizer changes the parameters."""

    def program() -> list[Tensor]:
        torch.manual_seed(0)
        cell = nn.LSTMCell(INPUTS, width)
        updates = optimizer(cell.parameters(), lr=0.1)  # type: ignore[call-arg]
        losses = []
        for _ in range(3):
            h = c = torch.zeros(BATCH, width)
            loss = torch.zeros(())
            for _ in range(length):
                h, c = cell(torch.randn(BATCH, INPUTS), (h, c))
                loss = loss + h.square().mean()
            losses.append(_update(loss, updates, retain=True))
        return _results(cell, losses)

    return program


def _truncated(retain: bool) -> Program:
    """The state is detached after each chunk and carried into the next one."""

    def program() -> list[Tensor]:
        torch.manual_seed(0)
        net = nn.ModuleList([nn.GRUCell(INPUTS, WIDTH), nn.Linear(WIDTH, INPUTS)])
        cell, head = net
        updates = torch.optim.Adam(net.parameters(), lr=0.01)
        h = torch.zeros(BATCH, WIDTH)
        losses = []
        for _ in range(6):
            h = h.detach()
            loss = torch.zeros(())
            for _ in range(24):
                x = torch.randn(BATCH, INPUTS)
                h = cell(x, h)
                loss = loss + functional.mse_loss(head(h), x)
            losses.append(_update(loss, updates, retain=retain))
        return _results(net, losses)

    return program


def _several_backwards() -> list[Tensor]:
    """Three losses of one graph run backward one after the other."""
    torch.manual_seed(0)
    cell = nn.GRUCell(INPUTS, WIDTH)
    updates = torch.optim.SGD(cell.parameters(), lr=0.01)
    losses: list[Tensor] = []
    for _ in range(3):
        h = torch.zeros(BATCH, WIDTH)
        losses = []
        for _ in range(36):
            h = cell(torch.randn(BATCH, INPUTS), h)
            losses.append(h.square().mean())
        for loss in losses[11::12]:
            loss.backward(retain_graph=True)
        updates.step()
        updates.zero_grad()
    return _results(cell, losses[-1:])


def _packed() -> list[Tensor]:
    torch.manual_seed(0)
    net = nn.LSTM(INPUTS, 48, num_layers=2, bidirectional=True)
    updates = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        lengths = torch.arange(24, 0, -1)
        sequences = torch.randn(24, 24, INPUTS)
        packed = nn.utils.rnn.pack_padded_sequence(sequences, lengths)
        loss = net(packed)[0].data.square().mean()
        loss.backward()
        updates.step()
        updates.zero_grad()
        losses.append(loss)
    return _results(net, losses)


class _Attention(nn.Module):
    """One layer that reads a cache of keys and values and extends it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor]) -> tuple[Tensor, Any]:
        keys = torch.cat([cache[0], self.key(x)], 1)
        values = torch.cat([cache[1], self.value(x)], 1)
        read = functional.scaled_dot_product_attention(self.query(x), keys, values)
        return x + self.out(read), (keys, values)


def _sampled() -> list[Tensor]:
    """Samples text word by word, with a growing cache."""
    torch.manual_seed(0)
    layers, embedding = nn.ModuleList(_Attention() for _ in range(3)), nn.Embedding(WORDS, WIDTH)
    with torch.no_grad():
        words = torch.randint(0, WORDS, (32, 1))
        caches: list[Any] = [(torch.zeros(32, 0, WIDTH),) * 2 for _ in layers]
        for _ in range(32):
            x = embedding(words[:, -1:])
            for i, layer in enumerate(layers):
                x, caches[i] = layer(x, caches[i])
            chances = (x[:, -1] @ embedding.weight.T).softmax(-1)
            words = torch.cat([words, torch.multinomial(chances, 1)], 1)
    return [words]


def _beams() -> list[Tensor]:
    """Beam search, which reorders the caches after each word."""
    width = 8
    torch.manual_seed(0)
    layers, embedding = nn.ModuleList(_Attention() for _ in range(4)), nn.Embedding(WORDS, WIDTH)
    with torch.no_grad():
        words, scores = torch.randint(0, WORDS, (width, 1)), torch.zeros(width)
        caches: list[Any] = [(torch.zeros(width, 0, WIDTH),) * 2 for _ in layers]
        for _ in range(32):
            x = embedding(words[:, -1:])
            for i, layer in enumerate(layers):
                x, caches[i] = layer(x, caches[i])
            all_scores = scores[:, None] + (x[:, -1] @ embedding.weight.T).log_softmax(-1)
            scores, best = all_scores.flatten().topk(width)
            row = best // WORDS
            words = torch.cat([words[row], best[:, None] % WORDS], 1)
            caches = [(keys[row], values[row]) for keys, values in caches]
    return [words, scores]


def _maml() -> list[Tensor]:
    """Differentiates through steps of gradient descent."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, INPUTS))
    updates = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        total = torch.zeros(())
        for _ in range(3):
            fast: dict[str, Tensor] = dict(net.named_parameters())
            x = torch.randn(256, INPUTS)

            def loss_of(weights: dict[str, Tensor], x: Tensor = x) -> Tensor:
                return functional.mse_loss(torch.func.functional_call(net, weights, x), x.sin())

            for _ in range(5):
                grads = torch.autograd.grad(loss_of(fast), list(fast.values()), create_graph=True)
                fast = {
                    name: weight - 0.1 * grad
                    for (name, weight), grad in zip(fast.items(), grads, strict=True)
                }
            total = total + loss_of(fast)
        total.backward()
        updates.step()
        updates.zero_grad()
        losses.append(total)
    return _results(net, losses)


PROGRAMS: dict[str, Program] = {
    "retained": _retained(72, WIDTH, torch.optim.SGD),
    "retained, Adam": _retained(40, WIDTH, torch.optim.Adam),
    "truncated": _truncated(retain=False),
    "truncated, retained": _truncated(retain=True),
    "several backwards": _several_backwards,
    "packed": _packed,
    "sampled": _sampled,
    "beams": _beams,
    "maml": _maml,
}
LARGE: dict[str, Program] = {"retained, large": _retained(160, 96, torch.optim.SGD)}
