"""Typical programs of several phases, whose later phases need other memory than earlier ones.

python tests/python/script.py phase_programs NAME      prints the digest of all results
"""

import copy
import hashlib
import io
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

PROGRAMS: dict[str, Callable[[], list[Tensor]]] = {}


def program(function: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
    PROGRAMS[function.__name__] = function
    return function


def digest(tensors: Iterable[Tensor]) -> str:
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def mlp(width: int = 128, depth: int = 4) -> nn.Sequential:
    return nn.Sequential(*[m for _ in range(depth) for m in (nn.Linear(width, width), nn.GELU())])


def fit(net: nn.Module, optimizer: Any, rows: Iterable[int], width: int = 128) -> Tensor:
    loss = torch.zeros(())
    for count in rows:
        optimizer.zero_grad()
        loss = net(torch.randn(count, width)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.detach()


def adam(net: nn.Module, **options: Any) -> torch.optim.Adam:
    return torch.optim.Adam(net.parameters(), lr=1e-3, **options)


@program
def ragged_batches() -> list[Tensor]:
    net = mlp()
    return [fit(net, adam(net), [256] * 5 + [700])]


@program
def evaluation() -> list[Tensor]:
    net = mlp()
    optimizer = adam(net)
    results = []
    for _ in range(2):
        results.append(fit(net, optimizer, [256] * 3))
        with torch.no_grad():
            results.append(torch.cat([net(torch.randn(900, 128)) for _ in range(3)]))
    return results


@program
def resumed() -> list[Tensor]:
    net = mlp()
    optimizer = adam(net)
    fit(net, optimizer, [256] * 3)
    file = io.BytesIO()
    torch.save([net.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    again = mlp()
    states = torch.load(file)
    again.load_state_dict(states[0])
    optimizer = adam(again)
    optimizer.load_state_dict(states[1])
    return [fit(again, optimizer, [256] * 3), *again.parameters()]


@program
def two_optimizers() -> list[Tensor]:
    one, other = mlp(), mlp(depth=2)
    optimizers = adam(one), torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(4):
        x = torch.randn(256, 128)
        for net, optimizer in zip((one, other), optimizers, strict=True):
            optimizer.zero_grad()
            loss = (net(x) - one(x).detach()).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return losses


@program
def generation() -> list[Tensor]:
    embed, net, head = nn.Embedding(50, 128), mlp(), nn.Linear(128, 50)
    tokens = torch.randint(0, 50, (8, 4))
    with torch.no_grad():
        for _ in range(30):
            hidden = net(embed(tokens))
            scores = F.scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True)
            tokens = torch.cat([tokens, head(scores[:, -1]).argmax(-1, keepdim=True)], 1)
    return [tokens]


@program
def amsgrad() -> list[Tensor]:
    net = mlp(192)
    return [fit(net, adam(net, amsgrad=True), [256] * 4, 192), *net.parameters()]


@program
def accumulated() -> list[Tensor]:
    net = mlp()
    optimizer = adam(net)
    for i in range(8):
        (net(torch.randn(128, 128)).square().mean() / 4).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    return list(net.parameters())


@program
def averaged() -> list[Tensor]:
    net = mlp()
    average = torch.optim.swa_utils.AveragedModel(net)
    optimizer = adam(net)
    for _ in range(4):
        fit(net, optimizer, [256])
        average.update_parameters(net)
    return list(average.parameters())


@program
def checkpointed() -> list[Tensor]:
    net = mlp(depth=6)
    optimizer = adam(net)
    for _ in range(3):
        optimizer.zero_grad()
        x = torch.randn(512, 128, requires_grad=True)
        for part in net:
            x = checkpoint(part, x, use_reentrant=False)
        x.square().mean().backward()
        optimizer.step()
    return list(net.parameters())


@program
def second_derivatives() -> list[Tensor]:
    net = mlp(64)
    x = torch.randn(256, 64, requires_grad=True)
    gradient = torch.autograd.grad(net(x).square().sum(), x, create_graph=True)[0]
    gradient.square().sum().backward()
    return [p.grad for p in net.parameters() if p.grad is not None]


@program
def adversarial() -> list[Tensor]:
    maker, judge = mlp(), nn.Sequential(mlp(), nn.Linear(128, 1))
    optimizers = adam(maker), adam(judge)
    losses = []
    for _ in range(3):
        made = maker(torch.randn(256, 128))
        for optimizer, value in zip(
            optimizers,
            (judge(made), judge(made.detach()) - judge(torch.randn(256, 128))),
            strict=True,
        ):
            optimizer.zero_grad()
            loss = value.mean()
            loss.backward(inputs=list(optimizer.param_groups[0]["params"]))
            losses.append(loss.detach())
        for optimizer in optimizers:
            optimizer.step()
    return losses


@program
def metrics_in_numpy() -> list[Tensor]:
    net = mlp()
    optimizer = adam(net)
    seen = []
    for _ in range(4):
        fit(net, optimizer, [256])
        with torch.no_grad():
            seen.append(net(torch.randn(300, 128)).numpy())
    return [torch.from_numpy(array) for array in seen]


@program
def unfrozen() -> list[Tensor]:
    body, head = mlp(depth=6), nn.Linear(128, 128)
    body.requires_grad_(False)
    fit(nn.Sequential(body, head), adam(head), [512] * 3)
    body.requires_grad_(True)
    net = nn.Sequential(body, head)
    return [fit(net, adam(net), [512] * 3), *net.parameters()]


@program
def convolutions() -> list[Tensor]:
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for size in (24, 24, 32):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(torch.randn(8, 3, size, size)), torch.arange(8))
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return [net.eval()(torch.randn(16, 3, 40, 40)), *net.parameters()]


@program
def recurrent() -> list[Tensor]:
    net = nn.LSTM(64, 96, num_layers=2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for length in (20, 20, 60):
        optimizer.zero_grad()
        net(torch.randn(length, 16, 64))[0].square().mean().backward()
        optimizer.step()
    return list(net.parameters())


@program
def mixed_precision() -> list[Tensor]:
    net = mlp()
    optimizer = adam(net)
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(torch.randn(512, 128)).float().square().mean()
        loss.backward()
        optimizer.step()
    return list(net.parameters())


@program
def second_order_optimizer() -> list[Tensor]:
    net = mlp(64, 2)
    x = torch.randn(256, 64)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=6, history_size=5)

    def closure() -> float:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss.item()

    optimizer.step(closure)
    return list(net.parameters())


@program
def distilled() -> list[Tensor]:
    teacher, student = mlp(depth=6), mlp(depth=2)
    fit(teacher, adam(teacher), [256] * 2)
    optimizer = adam(student)
    for _ in range(3):
        x = torch.randn(512, 128)
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        F.mse_loss(student(x), wanted).backward()
        optimizer.step()
    return list(student.parameters())


@program
def searched() -> list[Tensor]:
    start = mlp()
    best: list[Tensor] = []
    for rate in (0.1, 0.01, 0.001):
        net = copy.deepcopy(start)
        optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
        best.append(fit(net, optimizer, [256] * 3))
    return best


@program
def influence() -> list[Tensor]:
    net = mlp(48, 2)
    jacobian = torch.autograd.functional.jacobian(lambda x: net(x).sum(0), torch.randn(24, 48))
    with torch.no_grad():
        kept = [net(torch.randn(400, 48)) for _ in range(6)]
    return [jacobian, *kept]


def run(name: str) -> str:
    torch.manual_seed(0)
    return digest(PROGRAMS[name]())


if __name__ == "__main__":
    print(run(sys.argv[1]))
