"""Runs one check of the test device in a new process: PyTorch supports one such device.

python fakegpu_worker.py ops
python fakegpu_worker.py --serve    runs many checks, see forks.py
"""

import copy
import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

import fakegpu
from fakegpu_cases import CASES, floats, integers, resized
from forks import SERVE, serve

Net = Callable[[], nn.Module]


def same(a: Any, b: Any) -> bool:
    """Whether two tensors, of any devices, have the same bits."""
    if not isinstance(a, Tensor):
        return type(a) is type(b) and a == b
    a, b = a.detach().cpu().resolve_conj(), b.detach().cpu().resolve_conj()
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    a, b = (x.contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
    return torch.equal(a, b)


def run_case(name: str, device: str) -> list[Any]:
    """The results of a case, and the gradients of its inputs."""
    inputs, function = CASES[name]
    moved = [x.detach().clone().to(device) for x in inputs]
    for x in moved:
        x.requires_grad_(x.is_floating_point())
    outputs = tree_leaves(function(*moved))
    for x in outputs:
        assert x.device.type == device, f"{name}: a result on {x.device}"
    weighted = [
        (x.float() * torch.arange(1, x.numel() + 1, device=x.device).view(x.shape).cos()).sum()
        for x in outputs
        if x.requires_grad
    ]
    if weighted:
        torch.stack(weighted).sum().backward()
    return outputs + [x.grad for x in moved]


# On these PyTorch takes other kernels than on the CPU: fused cells, other orders of products.
NEARLY = {"lstm", "gru", "rnn"}


def ops(device: Any) -> None:
    failures = []
    with sdpa_kernel(SDPBackend.MATH):
        for name in CASES:
            try:
                want, got = run_case(name, "cpu"), run_case(name, fakegpu.NAME)
                assert len(want) == len(got)
                for i, (a, b) in enumerate(zip(want, got, strict=True)):
                    if name in NEARLY:
                        torch.testing.assert_close(a, b, check_device=False)
                    elif not same(a, b):
                        raise AssertionError(f"result {i}: {a} is not {b}")
            except Exception as error:
                failures.append(f"{name}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)
    assert resized(floats(3, 4).to(fakegpu.NAME))[2].untyped_storage().nbytes() == 96


class GPT(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(16, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(8, device=tokens.device))
        heads = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True, dropout_p=self.dropout.p)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        x = x + self.dropout(self.narrow(F.gelu(self.wide(self.norm2(x)))))
        return self.head(x).flatten(0, 1)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 20),
    )


def batch_of(model: nn.Module, step: int) -> tuple[Tensor, Tensor]:
    if isinstance(model, GPT):
        tokens = integers(20 - step, 4, 9)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
    return floats(4, 3, 12, 12) + step, integers(20 - step, 4)


def train(make: Net, device: str, steps: int = 3, **options: Any) -> list[Any]:
    """The losses, and the final parameters and buffers of the model."""
    torch.manual_seed(0)
    model = make().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
    losses = []
    for step in range(steps):
        x, target = (t.to(device) for t in batch_of(model, step))
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
        losses.append(loss.item())
    return losses + [x.cpu() for x in model.state_dict().values()]


def same_training(make: Net) -> None:
    for options in ({"foreach": True}, {"foreach": False}, {"fused": True}):
        with sdpa_kernel(SDPBackend.MATH):
            want = train(make, "cpu", **options)
            for device in ("fakegpu", "fakegpu:1"):
                got = train(make, device, **options)
                assert all(map(same, want, got)), f"{options} on {device}: {want[:3]}, {got[:3]}"


def train_cnn(device: Any) -> None:
    same_training(cnn)


def train_gpt(device: Any) -> None:
    same_training(lambda: GPT(0.0))


def train_with_dropout(device: Any) -> None:
    """Random numbers repeat, and the CPU's generator is not advanced."""
    first = train(lambda: GPT(0.2), "fakegpu")
    again = train(lambda: GPT(0.2), "fakegpu")
    assert all(map(same, first, again))
    assert not all(map(same, first, train(lambda: GPT(0.0), "fakegpu")))


def rng(device: Any) -> None:
    torch.manual_seed(7)
    cpu = torch.get_rng_state()
    x = torch.ones(1000, device="fakegpu")
    state = torch.fakegpu.get_rng_state()
    assert state.shape == (16,) and state.dtype == torch.uint8 and state.device.type == "cpu"
    first = F.dropout(x, 0.5)
    generator = device.default_generator(0)
    assert generator.get_offset() == 4 and generator.initial_seed() == 7
    assert not same(first, F.dropout(x, 0.5))
    torch.fakegpu.set_rng_state(state)
    assert same(first, F.dropout(x, 0.5))
    assert 400 < int((first == 0).sum()) < 600

    for draw in (torch.randn, torch.rand):
        mine = torch.Generator("fakegpu").manual_seed(3)
        a = draw(50, device="fakegpu", generator=mine)
        b = draw(50, device="fakegpu", generator=mine)
        mine.set_offset(0)
        assert not same(a, b) and same(a, draw(50, device="fakegpu", generator=mine))
    other = mine.clone_state()
    assert same(
        torch.randperm(9, device="fakegpu", generator=mine),
        torch.randperm(9, device="fakegpu", generator=other),
    )
    with torch.random.fork_rng([0], device_type="fakegpu"):
        inside = torch.rand(5, device="fakegpu")
    assert same(inside, torch.rand(5, device="fakegpu"))
    x.bernoulli_(0.3), x.normal_(), x.uniform_(), x.exponential_()
    torch.multinomial(x.abs(), 3)
    try:
        x.normal_(generator=torch.Generator())
    except RuntimeError as error:
        assert "Expected a 'fakegpu' device type" in str(error)
    else:
        raise AssertionError("a generator of the CPU on the device")
    assert same(cpu, torch.get_rng_state())


def streams(device: Any) -> None:
    """Two streams ordered by events; without the events, one reads before the other has written."""
    side = torch.Stream(device="fakegpu:0")
    default = torch.accelerator.current_stream()
    source = floats(64, 64).to("fakegpu")
    torch.accelerator.synchronize()
    for i in range(20):
        target = torch.zeros_like(source)
        side.wait_stream(default)
        with side:
            assert torch.accelerator.current_stream() == side
            target.copy_(source + i)
            doubled = target * 2
            event = side.record_event()
        default.wait_event(event)
        assert same(doubled + 1, (source + i) * 2 + 1)
        doubled.record_stream(default)
    for i in range(20):
        with side:
            product = source * i
        early = product.cpu()
        side.synchronize()
        assert same(product, source * i) and not same(early, product)
    event = torch.Event("fakegpu", enable_timing=True)
    later = torch.Event("fakegpu", enable_timing=True)
    event.record()
    source.clone()
    later.record()
    later.synchronize()
    assert event.query() and later.query() and event.elapsed_time(later) > 0


def forgotten_waits(device: Any) -> None:
    """A program whose waits are disabled reads too early."""
    side, default = torch.Stream(device="fakegpu:0"), torch.accelerator.current_stream()
    source = floats(64, 64).to("fakegpu")
    with side:
        product = source * 3
    default.wait_stream(side)
    assert device.waits() == 1
    assert not same(product, floats(64, 64) * 3)
    device.synchronize()
    assert same(product, floats(64, 64) * 3)


def autocast(device: Any) -> None:
    """As on CUDA: products in half precision, sums in single precision."""
    model = nn.Linear(6, 4).to("fakegpu")
    with torch.autocast("fakegpu", dtype=torch.bfloat16):
        out = model(floats(3, 6).to("fakegpu"))
        loss = F.cross_entropy(out, integers(4, 3).to("fakegpu"))
    assert out.dtype == torch.bfloat16 and loss.dtype == torch.float32
    loss.backward()
    assert model.weight.grad.dtype == torch.float32


def backward_on_a_stream(device: Any) -> None:
    """Autograd runs the backward pass on the streams of the forward pass, in its own thread."""
    want = torch.autograd.grad((w := floats(6, 6).requires_grad_()).sin().matmul(w).sum(), w)[0]
    w = floats(6, 6).to("fakegpu").requires_grad_()
    side = torch.Stream(device="fakegpu:0")
    threads = []
    w.register_hook(lambda grad: threads.append(threading.get_ident()))
    for _ in range(10):
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            loss = w.sin().matmul(w).sum()
        torch.accelerator.current_stream().wait_stream(side)
        w.grad = None
        loss.backward()
        assert same(w.grad, want)
    assert threading.get_ident() not in threads and len(set(threads)) == 1


def copies(device: Any) -> None:
    x = floats(5, 6)
    one = x.to("fakegpu:0")
    two = one.to("fakegpu:1")
    assert one.device.index == 0 and two.device.index == 1 and same(two, x)
    assert same(one.to("cpu", torch.float64), x.double())
    assert same(two.t().to("fakegpu:0"), x.t())
    one.copy_(torch.arange(6))
    assert same(one, torch.arange(6.0).expand(5, 6))
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned()
    late = pinned.to("fakegpu", non_blocking=True)
    assert same(late, x)
    back = torch.empty_like(x).pin_memory()
    back.fill_(0)
    back.copy_(late * 2, non_blocking=True)
    assert not back.any(), "the copy did not wait for the device to run"
    torch.fakegpu.synchronize()
    assert same(back, x * 2)
    assert same(copy.deepcopy(late), x)
    with torch.fakegpu.device(1):
        assert torch.empty(3, device="fakegpu").device.index == 1
    try:
        one + two
    except RuntimeError as error:
        assert "on the same device" in str(error)
    else:
        raise AssertionError("an op on two devices")


def memory(device: Any) -> None:
    """Out of memory raises PyTorch's error, and freed memory can be allocated again."""
    x = torch.empty(4 << 20, device="fakegpu")
    assert device.allocated_bytes(0) >= x.nbytes and device.allocated_bytes(1) == 0
    try:
        torch.empty(1 << 30, device="fakegpu")
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("more memory than the device has")
    before = device.allocated_bytes(0)
    for _ in range(50):
        x = torch.empty(4 << 20, device="fakegpu")
    assert device.allocated_bytes(0) <= before + x.nbytes
    del x
    device.empty_cache()
    assert device.allocated_bytes(0) == 0


CHECKS = {
    check.__name__: check
    for check in (
        ops,
        train_cnn,
        train_gpt,
        train_with_dropout,
        rng,
        streams,
        forgotten_waits,
        autocast,
        backward_on_a_stream,
        copies,
        memory,
    )
}

OPTIONS = {"forgotten_waits": {"forget_each": 1}}


def run(words: list[str]) -> None:
    check, seed = words[0], int(words[1]) if len(words) > 1 else 0
    torch.set_num_threads(1)
    CHECKS[check](fakegpu.install(seed=seed, **OPTIONS.get(check, {})))
    # See END_AS_USUAL in gpu_worker.py.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        serve(run)
    else:
        faulthandler.enable()
        run(sys.argv[1:])
