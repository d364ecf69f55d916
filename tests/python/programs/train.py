"""Typical training loops, and the bits of everything that they compute.

`train` runs one of them with or without a budget. Results are copied while the loop runs: as the
bytes of a clone, so that no tensor of the program itself escapes.
"""

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from recoup.bench.flat_options import split
from recoup.bench.nets.net import Batch, Net
from recoup.bench.nets.tiny import NETS, seeded

HUGE = 16 << 30  # far above the need of any net: the peak in this budget is the unbudgeted peak


# ---- bits ----
@dataclass(frozen=True)
class Bits:
    """A tensor's value, compared by its bytes: NaNs and signed zeros count, too."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    data: bytes

    @staticmethod
    def of(tensor: Tensor) -> "Bits":
        flat = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
        # Only the clone escapes to NumPy, and it dies here.
        data = flat.view(torch.uint8).cpu().numpy().tobytes() if flat.numel() else b""
        return Bits(tensor.dtype, tuple(tensor.shape), data)

    def difference(self, other: "Bits") -> str:
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return f"{self.dtype}{list(self.shape)} against {other.dtype}{list(other.shape)}"
        ours, theirs = (np.frombuffer(bits.data, np.uint8) for bits in (self, other))
        width = len(self.data) // max(1, int(np.prod(self.shape)))
        differ = (ours != theirs).reshape(-1, width).any(1)
        first = int(differ.argmax())
        values = [
            torch.frombuffer(bytearray(bits.data), dtype=self.dtype)[first].item()
            for bits in (self, other)
        ]
        return (
            f"{int(differ.sum())} of {differ.size} elements differ; "
            f"element {first} is {values[0]!r} against {values[1]!r}"
        )


@dataclass
class Result:
    """The results of a training in the order of their computation."""

    bits: dict[str, Bits] = field(default_factory=dict)
    stats: Any = None  # recoup's, if there was a budget
    decisions: Any = None  # likewise

    def keep(self, name: str, value: Any) -> None:
        """Keeps every tensor and number in `value`, which may be nested."""
        if isinstance(value, Tensor):
            self.bits[name] = Bits.of(value)
        elif isinstance(value, dict):
            for key, part in value.items():
                self.keep(f"{name}.{key}", part)
        elif isinstance(value, list | tuple):
            for index, part in enumerate(value):
                self.keep(f"{name}.{index}", part)
        elif isinstance(value, bool | int | float | complex):
            self.bits[name] = Bits.of(torch.tensor(value))


def assert_bits_equal(ours: Result, theirs: Result) -> None:
    """Fails at the first tensor that differs, in the order of the computation."""
    for name, bits in theirs.bits.items():
        assert name in ours.bits, f"{name} is missing"
        if bits != ours.bits[name]:
            raise AssertionError(f"{name}: {ours.bits[name].difference(bits)}")
    extra = [name for name in ours.bits if name not in theirs.bits]
    assert not extra, f"{extra[0]} was not expected"


# ---- variants ----
Optimizer = torch.optim.Optimizer


def adamw(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def adamw_foreach(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=True)


def adamw_fused(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


def sgd_momentum(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=True)


@dataclass(frozen=True)
class Variant:
    """A way to write the loop; the fields are differences from the plainest one."""

    name: str
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = adamw
    autocast: bool = False  # bfloat16
    micro_batches: int = 1  # number of batches over which gradients accumulate
    clip: float | None = None  # the norm that gradients are clipped to
    penalty: float = 0.0  # weight of the squared norm of the gradients: a double backward
    tied: bool = False  # makes two weights of one shape one parameter
    average: float | None = None  # decay of an exponential moving average of the weights
    reentrant: bool | None = None  # uses torch.utils.checkpoint, with this flag
    evaluate: bool = False  # with no_grad and inference_mode between steps
    workers: int = 0  # processes that load batches


VARIANTS: tuple[Variant, ...] = (
    Variant("plain"),
    Variant("bf16_autocast", autocast=True),
    Variant("accumulation_and_clipping", micro_batches=2, clip=0.5),
    Variant("double_backward", penalty=0.01),
    Variant("tied_weights", tied=True),
    Variant("adamw_foreach", optimizer=adamw_foreach),
    Variant("adamw_fused", optimizer=adamw_fused),
    Variant("sgd_momentum", optimizer=sgd_momentum),
    Variant("ema", average=0.9),
    Variant("checkpoint", reentrant=False),
    Variant("checkpoint_reentrant", reentrant=True),
    Variant("evaluation", evaluate=True),
    Variant("loader_workers", workers=2),
)


def variant_named(name: str) -> Variant:
    for variant in VARIANTS:
        if variant.name == name:
            return variant
    raise ValueError(f"no variant {name!r}; there are {', '.join(v.name for v in VARIANTS)}")


# Every net without additions, and each variant on a suitable net; the slow test runs all pairs.
PAIRS = (
    *((net.name, "plain") for net in NETS),
    ("char_gpt", "accumulation_and_clipping"),
    ("resnet", "double_backward"),
    ("resnet", "sgd_momentum"),
    ("unet", "ema"),
    ("unet", "loader_workers"),
    ("bilstm", "adamw_foreach"),
    ("tree_lstm", "adamw_fused"),
    ("bert", "bf16_autocast"),
    ("gpt2", "tied_weights"),
    ("gpt2", "checkpoint"),
    ("vit", "checkpoint_reentrant"),
    ("resnet50", "evaluation"),
)


def tie_weights(model: nn.Module) -> None:
    """Makes the two largest weights of one shape one parameter, as language models do."""
    first_of: dict[torch.Size, nn.Parameter] = {}
    pairs: list[tuple[nn.Parameter, nn.Module, str]] = []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            first = first_of.setdefault(parameter.shape, parameter)
            if parameter.dim() > 1 and first is not parameter:
                pairs.append((first, module, name))
    first, module, name = max(pairs, key=lambda pair: pair[0].numel())
    setattr(module, name, first)


# Blocks of nets that are not chains of blocks.
ONE_BLOCK = {"bilstm": "tag", "tree_lstm": "gates"}


def wrap_in_checkpoints(net: Net, model: nn.Module, *, use_reentrant: bool) -> None:
    """Makes `torch.utils.checkpoint` recompute the net's blocks, as a user would by hand."""
    if getattr(model, "supports_gradient_checkpointing", False):  # the switch of transformers
        model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})  # type: ignore[operator]
        return
    blocks = [block for chain in net.chains for block in model.get_submodule(chain).children()]
    if net.name in ONE_BLOCK:
        blocks.append(model.get_submodule(ONE_BLOCK[net.name]))
    for block in blocks:
        forward = block.forward
        block.forward = lambda *args, forward=forward: checkpoint(  # type: ignore[method-assign]
            forward, *args, use_reentrant=use_reentrant
        )


class Batches(Dataset[Batch]):
    def __init__(self, net: Net, count: int) -> None:
        self.net, self.count = net, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Batch:
        return self.net.batch(seeded(index))


def batches(net: Net, variant: Variant, count: int) -> Iterator[Batch]:
    yield from DataLoader(Batches(net, count), batch_size=None, num_workers=variant.workers)


def double_backward_kernels() -> AbstractContextManager[Any]:
    """Kernels with second derivatives; fused attention and oneDNN's LSTM have none."""
    stack = ExitStack()
    stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
    stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
    return stack


# ---- the loop ----
class Training:
    """A model with its optimizer, and the loop over them. It does not know about budgets."""

    def __init__(self, net: Net, variant: Variant, device: str = "cpu") -> None:
        self.net, self.variant, self.device = net, variant, device
        self.model = net.make().train().to(device)
        if variant.tied:
            tie_weights(self.model)
        if variant.reentrant is not None:
            wrap_in_checkpoints(net, self.model, use_reentrant=variant.reentrant)
        self.average = None if variant.average is None else copy.deepcopy(self.model)
        self.optimizer = variant.optimizer(self.model.parameters())

    def loss(self, batch: Batch) -> Tensor:
        kind = torch.device(self.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=self.variant.autocast):
            return self.net.loss(self.model, batch)

    def backward(self, batch: Batch) -> Tensor:
        variant = self.variant
        if not variant.penalty:
            loss = self.loss(batch) / variant.micro_batches
            loss.backward()
            return loss.detach()
        with double_backward_kernels():
            loss = self.loss(batch)
            parameters = [p for p in self.model.parameters() if p.requires_grad]
            gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
            norm = sum(g.square().sum() for g in gradients if g is not None)
            loss = loss + variant.penalty * norm
            loss.backward()
        return loss.detach()

    def move(self, batch: Batch) -> Batch:
        return tree_map_only(Tensor, lambda tensor: tensor.to(self.device), batch)

    def evaluate(self, batch: Batch, step: int, result: Result) -> None:
        self.model.eval()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                result.keep(f"step {step} {mode.__name__} loss", self.loss(batch))
        self.model.train()

    def run(self, steps: int, result: Result) -> None:
        variant = self.variant
        source = batches(self.net, variant, steps * variant.micro_batches)
        for step in range(steps):
            for part in range(variant.micro_batches):
                batch = self.move(next(source))
                result.keep(f"step {step} loss {part}", self.backward(batch))
            if variant.clip is not None:
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), variant.clip)
                result.keep(f"step {step} gradient norm", norm)
            for name, parameter in self.model.named_parameters():
                result.keep(f"step {step} gradient {name}", parameter.grad)
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.average is not None:
                self.update_average()
            if variant.evaluate:
                self.evaluate(batch, step, result)

    @torch.no_grad()
    def update_average(self) -> None:
        assert self.average is not None and self.variant.average is not None
        for mean, now in zip(self.average.parameters(), self.model.parameters(), strict=True):
            mean.lerp_(now, 1 - self.variant.average)
        for mean, now in zip(self.average.buffers(), self.model.buffers(), strict=True):
            mean.copy_(now)

    def keep_state(self, result: Result) -> None:
        result.keep("parameter", dict(self.model.named_parameters()))
        result.keep("optimizer", self.optimizer.state_dict())
        result.keep("buffer", dict(self.model.named_buffers()))
        if self.average is not None:
            result.keep("average", dict(self.average.named_parameters()))
        result.keep("random numbers", torch.get_rng_state())


@contextmanager
def scope(budget: int | str | None, options: dict[str, Any]) -> Iterator[Any]:
    """The scope of a budget, which ends in any case; no scope if `budget` is None."""
    if budget is None:
        yield None
        return
    import recoup
    from recoup._memory.device_memory import free_bytes

    run = None
    try:
        with recoup.budget(budget, **split(options)) as run:
            yield run
    except recoup.OutOfBudgetError:
        with suppress(RuntimeError):  # "this scope is over": the live values did fit
            if run is not None:
                run.resume(HUGE if run.device.type == "cpu" else free_bytes(run.device))
        raise


def train(
    net: Net,
    variant: Variant,
    steps: int = 2,
    budget: int | str | None = None,
    policy: str = "dtr-eq",
    *,
    seed: int = 0,
    model_inside: bool = True,
    device: str = "cpu",
    **options: Any,
) -> Result:
    """Trains `net`, in a budget if one is given. `model_inside`: makes the model within the scope.

    `options` go to `recoup.budget`. A budget that is too small raises `recoup.OutOfBudgetError`.
    """
    result = Result()
    torch.manual_seed(seed)
    random.seed(seed)
    training = None if model_inside else Training(net, variant, device)
    with scope(budget, {"policy": policy, "device": device, **options}) as run:
        if training is None:
            training = Training(net, variant, device)
        training.run(steps, result)
    result.stats = None if run is None else run.stats()
    result.decisions = None if run is None else run.decisions()
    training.keep_state(result)
    return result
