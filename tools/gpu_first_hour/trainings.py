"""Typical trainings of users. `programs.py` compares their bits in budgets with plain runs.

Each is a function of the device and of whether it must be tiny. It returns a function that trains
and returns the tensors that the training changed, or a sentence why it cannot run here.
"""

import copy
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training import tensors_left

import gpu

Train = Callable[[], list[Tensor]]
Make = Callable[[torch.device, bool], Train | str]
VOCABULARY = 1000


@dataclass(frozen=True)
class Training:
    """A training of some steps in its own process."""

    make: Make
    options: dict[str, Any] = field(default_factory=dict)
    """Options of `recoup.budget`."""
    environment: dict[str, str] = field(default_factory=dict)
    strict: bool = True
    """Whether all of its ops have deterministic kernels on a GPU."""


def left(model: nn.Module, optimizer: torch.optim.Optimizer, losses: list[Tensor]) -> list[Tensor]:
    """Host copies of all tensors that a training changes."""
    found = (*losses, *tensors_left(model, optimizer))
    whole = (each.full_tensor() if hasattr(each, "full_tensor") else each for each in found)
    return [each.detach().cpu().clone() for each in whole]


def train(
    device: torch.device,
    make: Callable[[], nn.Module],
    loss_of: Callable[[nn.Module], Tensor],
    optimizer_of: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    steps: int = 3,
    scaled: bool = False,
) -> list[Tensor]:
    torch.manual_seed(0)
    with device:
        model = make().train()
    optimizer = optimizer_of(model.parameters())
    scaler = torch.amp.GradScaler(device.type, enabled=scaled)
    losses = []
    for _ in range(steps):
        loss = loss_of(model)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return left(model, optimizer, losses)


def _sizes(tiny: bool) -> tuple[int, int]:
    """Rows and features of a layer, such that values kept for backward take most of the memory."""
    return (512, 64) if tiny else (8192, 512)


def _chain(tiny: bool) -> nn.Module:
    _, width = _sizes(tiny)
    layers = (nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))
    return nn.Sequential(*(nn.Sequential(*copy.deepcopy(layers)) for _ in range(16)))


def _loss_of_rows(device: torch.device, tiny: bool) -> Callable[[nn.Module], Tensor]:
    return lambda model: model(torch.randn(_sizes(tiny), device=device)).square().mean()


def chain(
    device: torch.device, tiny: bool, optimizer: str = "AdamW", **settings: Any
) -> Train | str:
    """Layers with dropout, trained by an optimizer with its settings."""
    if settings.get("capturable") and not gpu.is_real(device):
        return "capturable optimizers are CUDA's"
    of = partial(getattr(torch.optim, optimizer), lr=1e-3, **settings)
    return partial(train, device, partial(_chain, tiny), _loss_of_rows(device, tiny), of)


def penalty(device: torch.device, tiny: bool) -> Train:
    """A loss with the gradient of a gradient."""
    rows, width = _sizes(tiny)

    def make() -> nn.Module:
        layers = (nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(8))
        return nn.Sequential(*layers)

    def loss(model: nn.Module) -> Tensor:
        x = torch.randn(rows, width, device=device, requires_grad=True)
        y = model(x).square().mean()
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        return y + gradient.square().sum()

    return partial(train, device, make, loss)


def loader(device: torch.device, tiny: bool) -> Train:
    """Batches from two worker processes, through pinned memory."""
    rows, width = _sizes(tiny)
    data = torch.utils.data.TensorDataset(torch.randn(4 * rows, width))

    def run() -> list[Tensor]:
        real = gpu.is_real(device)
        batches = iter(
            torch.utils.data.DataLoader(data, batch_size=rows, num_workers=2, pin_memory=real)
        )

        def loss(model: nn.Module) -> Tensor:
            (x,) = next(batches)
            found: Tensor = model(x.to(device, non_blocking=True)).square().mean()
            return found

        return train(device, partial(_chain, tiny), loss)

    return run


class Attention(nn.Module):
    """Causal self-attention with dropout and a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, 8, width // 8).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
        found: Tensor = x + self.out(mixed.transpose(1, 2).reshape_as(x))
        return found


def attention(device: torch.device, tiny: bool, backend: str) -> Train | str:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if not gpu.is_real(device):
        return "the test device has no fused attention with dropout"

    shape = (4, 128, 64) if tiny else (16, 512, 512)

    def loss(model: nn.Module) -> Tensor:
        x = torch.randn(shape, device=device)
        with sdpa_kernel(getattr(SDPBackend, backend)), torch.autocast(device.type, torch.bfloat16):
            found: Tensor = model(x).square().mean()
            return found

    def make() -> nn.Module:
        return nn.Sequential(*(Attention(shape[-1]) for _ in range(8)))

    return partial(train, device, make, loss)


class Recurrent(nn.Module):
    """Many short recurrent layers: cuDNN's workspace for one is as large as some of them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        of = getattr(nn, kind)
        self.layers = nn.ModuleList(of(128, 128, batch_first=True) for _ in range(24))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)[0]
        return x


def recurrent(device: torch.device, tiny: bool, kind: str) -> Train:
    shape = (64, 6, 128) if tiny else (128, 64, 128)
    return partial(
        train,
        device,
        partial(Recurrent, kind),
        lambda model: model(torch.randn(shape, device=device)).square().mean(),
    )


def language(device: torch.device, tiny: bool, kind: str) -> Train | str:
    """A model of `transformers` with random weights."""
    if importlib.util.find_spec("transformers") is None:
        return "transformers is not installed"
    import transformers

    width, depth = (64, 2) if tiny else (512, 8)
    common = {"vocab_size": VOCABULARY, "num_hidden_layers": depth, "num_attention_heads": 8}
    wide = {"hidden_size": width, "intermediate_size": 2 * width}
    settings: dict[str, Any] = {
        "GPT2LMHead": {"n_embd": width, "n_layer": depth, "n_head": 8, "vocab_size": VOCABULARY},
        "T5ForConditionalGeneration": {
            "d_model": width, "d_ff": 2 * width, "num_layers": depth // 2, "num_heads": 8,
            "vocab_size": VOCABULARY, "decoder_start_token_id": 0,
        },
    }.get(kind, {**common, **wide})  # fmt: skip
    name = {"T5ForConditionalGeneration": "T5"}.get(kind, kind.removesuffix("LMHead"))
    name = name.removesuffix("ForCausalLM").removesuffix("ForMaskedLM")
    model_name = "GPT2LMHeadModel" if kind == "GPT2LMHead" else kind
    shape = (8, 64) if tiny else (16, 256)

    def make() -> nn.Module:
        configuration = getattr(transformers, f"{name}Config")(**settings)
        made: nn.Module = getattr(transformers, model_name)(configuration)
        return made

    def loss(model: nn.Module) -> Tensor:
        tokens = torch.randint(0, VOCABULARY, shape, device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=gpu.is_real(device)):
            found: Tensor = model(input_ids=tokens, labels=tokens).loss
            return found

    return partial(train, device, make, loss)


# Side and number of images with which the least budget is below half of the peak.
_TINY_IMAGES = {"resnet18": (32, 2), "efficientnet_b0": (32, 8)}


def image(device: torch.device, tiny: bool, kind: str) -> Train | str:
    """A model of torchvision, channels-last; in float16 on a GPU."""
    if importlib.util.find_spec("torchvision") is None:
        return "torchvision is not installed"
    import torchvision

    side, images = _TINY_IMAGES.get(kind, (64, 8)) if tiny else (224, 32)
    last = torch.channels_last
    real = gpu.is_real(device)

    def loss(model: nn.Module) -> Tensor:
        x = torch.randn(images, 3, side, side, device=device).to(memory_format=last)
        labels = torch.randint(0, 1000, (images,), device=device)
        with torch.autocast(device.type, torch.float16, enabled=real):
            return F.cross_entropy(model(x), labels)

    def make() -> nn.Module:
        models = torchvision.models
        made: nn.Module
        if tiny and kind == "vit_b_32":
            made = models.VisionTransformer(side, 8, 4, 4, 64, 128)
        elif tiny and kind == "swin_t":
            made = models.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4])
        elif tiny and kind == "densenet121":
            made = models.DenseNet(8, (2, 2, 2, 2), 16)
        else:
            made = getattr(models, kind)()
        return made.to(memory_format=last)

    sgd = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
    return partial(train, device, make, loss, sgd, scaled=real)


def distributed(device: torch.device, tiny: bool, kind: str) -> Train | str:
    """A training in one process with NCCL."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    if not gpu.is_real(device):
        return "the test device has no NCCL"
    store = dist.HashStore()
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)

    def make() -> nn.Module:
        model = _chain(tiny)
        if kind == "DDP":
            return DistributedDataParallel(model)
        for block in model:  # type: ignore[attr-defined]
            fully_shard(block)
        made: nn.Module = fully_shard(model)  # type: ignore[assignment]
        return made

    of = partial(torch.optim.AdamW, foreach=False)
    return partial(train, device, make, _loss_of_rows(device, tiny), of)


def compiled(device: torch.device, tiny: bool) -> Train | str:
    if not gpu.is_real(device):
        return "Inductor knows no test device"

    def make() -> nn.Module:
        model = _chain(tiny)
        model.compile()
        return model

    return partial(train, device, make, _loss_of_rows(device, tiny))


def all_trainings() -> Iterator[tuple[str, Training]]:
    from recoup.known_names import policy_names

    for optimizer, settings in (
        ("AdamW", {"foreach": True}),
        ("AdamW", {"fused": True}),
        ("AdamW", {"foreach": False}),
        ("Adam", {"capturable": True}),
        ("SGD", {"momentum": 0.9, "fused": True}),
        ("RMSprop", {}),
        ("Adagrad", {}),
    ):
        words = " ".join(f"{name}={value}" for name, value in settings.items())
        make = partial(chain, optimizer=optimizer, **settings)
        yield f"chain, {optimizer} {words}".strip(), Training(make)
    for policy in policy_names():
        yield f"chain, policy {policy}", Training(chain, {"policy": policy})
    yield "chain, spill tier", Training(chain, {"spill": "256MiB"})
    own = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    yield "chain, cudaMallocAsync", Training(chain, environment=own)
    yield "gradient penalty", Training(penalty)
    yield "loader with workers", Training(loader)
    for backend in ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
        # cuDNN has no deterministic kernel.
        strict = backend != "CUDNN_ATTENTION"
        yield f"attention, {backend}", Training(partial(attention, backend=backend), strict=strict)
    for kind in ("LSTM", "GRU", "RNN"):
        yield kind, Training(partial(recurrent, kind=kind))
    for kind in (
        "GPT2LMHead",
        "LlamaForCausalLM",
        "BertForMaskedLM",
        "T5ForConditionalGeneration",
        "MixtralForCausalLM",
    ):
        yield f"transformers, {kind}", Training(partial(language, kind=kind), strict=False)
    for kind in (
        "resnet18",
        "mobilenet_v3_small",
        "efficientnet_b0",
        "vit_b_32",
        "swin_t",
        "densenet121",
    ):
        yield f"torchvision, {kind}", Training(partial(image, kind=kind), strict=False)
    for kind in ("DDP", "FSDP2"):
        yield kind, Training(partial(distributed, kind=kind))
    yield "Inductor", Training(compiled)
