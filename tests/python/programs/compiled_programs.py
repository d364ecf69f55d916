"""Programs with `torch.compile`: each returns everything that it computes, in a list."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

Program = Callable[[], list[torch.Tensor]]
PROGRAMS: dict[str, Program] = {}
ROWS = 512
WIDTH = 64


class Block(torch.nn.Module):
    """The feed-forward part of a transformer block."""

    def __init__(self, *, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(WIDTH) if norm else torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return x + torch.nn.functional.dropout(y, self.dropout, self.training)


def blocks(count: int = 6, **settings: Any) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*[Block(**settings) for _ in range(count)])


def compiled_each(net: torch.nn.Sequential, **settings: Any) -> torch.nn.Sequential:
    for i in range(len(net)):
        net[i] = torch.compile(net[i], **settings)  # type: ignore[call-overload]
    return net


def train(
    net: Callable[[torch.Tensor], torch.Tensor],
    state: torch.nn.Module,
    *,
    steps: int = 3,
    rows: Callable[[int], int] = lambda step: ROWS,
) -> list[torch.Tensor]:
    """The losses, the gradients of the last step, the weights and the buffers."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(state.parameters(), lr=0.1)
    made = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(rows(step), WIDTH)).square().mean()
        loss.backward()
        optimizer.step()
        made.append(loss.detach())
    made += [each.grad for each in state.parameters() if each.grad is not None]
    return made + [each.detach() for each in state.state_dict().values()]


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


@program
def per_block() -> list[torch.Tensor]:
    net = compiled_each(blocks())
    return train(net, net)


@program
def dropout_and_batch_norm() -> list[torch.Tensor]:
    net = compiled_each(blocks(dropout=0.2, norm=True))
    return train(net, net)


@program
def eager_dropout() -> list[torch.Tensor]:
    """Random numbers are drawn by ops, not by seeds of compiled kernels."""
    with torch._inductor.config.patch(fallback_random=True):
        net = compiled_each(blocks(dropout=0.2))
        return train(net, net)


@program
def whole_model() -> list[torch.Tensor]:
    net = blocks(dropout=0.2, norm=True)
    return train(torch.compile(net), net)


@program
def dynamic_shapes() -> list[torch.Tensor]:
    net = compiled_each(blocks(), dynamic=True)
    return train(net, net, rows=lambda step: ROWS - 96 * step)


@program
def recompilation() -> list[torch.Tensor]:
    net = compiled_each(blocks(4), dynamic=False)
    return train(net, net, rows=lambda step: ROWS - 96 * (step % 2), steps=4)


@program
def graph_breaks() -> list[torch.Tensor]:
    net = blocks(dropout=0.2)

    def forward(x: torch.Tensor) -> torch.Tensor:
        for block in net:
            x = block(x)
            torch._dynamo.graph_break()
            x = x * 1.5
        return x

    return train(torch.compile(forward), net)


@program
def max_autotune() -> list[torch.Tensor]:
    net = compiled_each(blocks(2), mode="max-autotune-no-cudagraphs")
    return train(net, net)


@program
def autocast() -> list[torch.Tensor]:
    net = compiled_each(blocks(dropout=0.2))

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return net(x).float()  # type: ignore[no-any-return]

    return train(forward, net)


@program
def checkpointed() -> list[torch.Tensor]:
    """Dropout is drawn by ops: the graph itself restores the state of the generator."""
    net = blocks(dropout=0.2)

    def forward(x: torch.Tensor) -> torch.Tensor:
        for block in net:
            x = checkpoint(block, x, use_reentrant=False)
        return x

    with torch._inductor.config.patch(fallback_random=True):
        return train(torch.compile(forward), net)


class Memory(torch.nn.Module):
    """Changes a large buffer and its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("seen", torch.zeros(ROWS, WIDTH))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        with torch.no_grad():
            self.seen.mul_(0.5).add_(y)
            self.count += 1
        return torch.nn.functional.gelu(y + self.seen / self.count) + x


@program
def in_place() -> list[torch.Tensor]:
    torch.manual_seed(0)
    net = compiled_each(torch.nn.Sequential(*[Memory() for _ in range(5)]))
    return train(net, net)


@program
def in_place_of_what_is_given() -> list[torch.Tensor]:
    @torch.compile
    def step(x: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total.add_(x.sum(0))
        return x.relu() * total, total, total[8:], x

    torch.manual_seed(0)
    total = torch.zeros(WIDTH)
    made = []
    x = torch.randn(4 * ROWS, WIDTH)
    for _ in range(8):
        x, same, part, _ = step(x, total)
        x = x / 100
        made += [x.sum(), same + 1, part + 1]
    total += 5
    return [*made, part, same, total]


@program
def without_gradients() -> list[torch.Tensor]:
    net = blocks().eval()
    forward = torch.compile(net)
    torch.manual_seed(1)
    made = []
    with torch.no_grad():
        for _ in range(3):
            made.append(forward(torch.randn(ROWS, WIDTH)).sum(0))
    with torch.inference_mode():
        made += [forward(torch.randn(ROWS, WIDTH)).sum(0) for _ in range(3)]
    return [each.clone() for each in made]


@program
def aliases_and_constants() -> list[torch.Tensor]:
    weights = torch.linspace(0, 1, 4 * ROWS * WIDTH).reshape(4 * ROWS, WIDTH).exp()

    @torch.compile
    def step(x: torch.Tensor) -> tuple[Any, ...]:
        y = x * weights + torch.tensor([0.25, 0.75] * (WIDTH // 2))
        return y, y[::2], y.t(), x.view(-1), x, 7, None

    torch.manual_seed(0)
    x = torch.randn(4 * ROWS, WIDTH)
    kept = []
    for _ in range(6):
        y, half, turned, flat, same, _, _ = step(x)
        kept += [y, half + 1, turned, flat + same.view(-1)]
        x = y / 3
    return [each.sum(0) for each in kept]


@program
def optimizer() -> list[torch.Tensor]:
    net = compiled_each(blocks(4))
    adam = torch.optim.AdamW(net.parameters(), lr=0.01)
    update = torch.compile(adam.step)
    torch.manual_seed(1)
    losses = []
    for _ in range(3):
        adam.zero_grad()
        loss = net(torch.randn(ROWS, WIDTH)).square().mean()
        loss.backward()
        update()
        losses.append(loss.detach())
    return losses + [each.detach() for each in net.parameters()]


@functools.cache
def shift_op() -> Any:
    """A custom op that reads and writes a tensor that is not among its arguments."""

    @torch.library.custom_op("recoup_compiled::shift", mutates_args=())
    def shift(x: torch.Tensor) -> torch.Tensor:
        HIDDEN[0].mul_(1.01)
        return x + HIDDEN[0][: x.shape[0]]

    shift.register_fake(torch.empty_like)
    shift.register_autograd(lambda context, grad: grad * 1)
    return shift


HIDDEN: list[torch.Tensor] = []


@program
def custom_op() -> list[torch.Tensor]:
    net = blocks(4)
    shift = shift_op()

    def forward(x: torch.Tensor) -> torch.Tensor:
        for block in net:
            x = shift(block(x))
        return x

    HIDDEN[:] = [torch.ones(ROWS, WIDTH) + 1]
    made = train(torch.compile(forward), net)
    return [*made, HIDDEN.pop()]


@program
def one_memory_in_two_storages() -> list[torch.Tensor]:
    @torch.compile
    def step(changed: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        changed.add_(1)
        return read * changed.sum()

    made = []
    for numpy_memory in (True, False):
        whole = torch.zeros(8192)
        if numpy_memory:
            memory = whole.numpy().copy()
            part, whole = torch.from_numpy(memory[:64]), torch.from_numpy(memory)
        else:
            part = torch.empty(0).set_(whole.untyped_storage()[:256], 0, (64,))
        made += [step(part, whole).clone() for _ in range(3)]
    return made
