"""A program in a budget, watched by the hook that RECOUP_HOOK names. Prints the hook's name.

python hook_worker.py [taken]     with another library's fallback on dispatch key Fake
"""

import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

if "taken" in sys.argv[1:]:

    def unexpected(*args: object, **kwargs: object) -> object:
        raise AssertionError("no code enables this key")

    others = torch.library.Library("_", "IMPL")
    others.fallback(unexpected, "Fake")

import recoup
from recoup import _C

FAKE = torch._C.DispatchKeySet(torch._C._dispatch_key_parse("Fake"))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(self.linear(x).tanh(), 0.2)


def train() -> list[torch.Tensor]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[Block() for _ in range(12)])
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    data = torch.randn(256, 64)
    for _ in range(3):
        optimizer.zero_grad()
        net(data).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in net.parameters()]


def is_watched() -> bool:
    """Whether an evicted tensor is rematerialized for an op, and the op's result can be evicted."""
    first = torch.arange(4096.0) * 2
    second = first + 1
    if not (recoup.evict(first) and recoup.evict(second)):
        return False
    return torch.equal(second - first, torch.ones(4096))


def check_what_leaves_fake_mode() -> None:
    block, x = Block(), torch.randn(8, 64)
    with FakeTensorMode() as mode:
        assert mode.from_tensor(x).add(1).shape == x.shape
    assert is_watched()
    torch.export.export(block, (x,))
    assert is_watched()
    compiled = torch.compile(block, backend="aot_eager")
    compiled(x).sum().backward()
    assert is_watched()


def check_an_op_that_is_new() -> None:
    library = torch.library.Library("recoup_hook_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    x = torch.arange(4096.0) + 1
    assert recoup.evict(x)
    y = torch.ops.recoup_hook_test.twice(x)
    assert torch.equal(y, (torch.arange(4096.0) + 1) * 2)


def check_without_fake() -> None:
    """The thread excludes key Fake, as PyTorch's FakeTensor mode in C++ leaves it."""
    with torch._C._ExcludeDispatchKeyGuard(FAKE):
        x = torch.arange(4096.0) * 2
        y = x + 1
        assert recoup.evict(y)
        assert torch.equal(y, torch.arange(4096.0) * 2 + 1)


def main() -> None:
    plain = train()
    with recoup.budget("1100KiB") as run:
        got = train()
    assert all(map(torch.equal, plain, got)), "other bits"
    assert run.stats().replays, "nothing was replayed"
    with recoup.budget("64MiB") as run:
        assert is_watched()
        check_what_leaves_fake_mode()
        check_an_op_that_is_new()
        if _C.hook == "backend_select":
            check_without_fake()
        run.check()
    print(_C.hook)


if __name__ == "__main__":
    main()
