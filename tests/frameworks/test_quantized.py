"""LoRA on quantized weights of a frozen base: torchao and bitsandbytes."""

from collections.abc import Callable
from pathlib import Path

import bitsandbytes
import peft
import pytest
import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

import recoup
from compare import Trained, assert_same, check, copies, losses_of, peak_of
from models import Texts, llama

STEPS = 4
Layer = Callable[[torch.nn.Linear], torch.nn.Module]


def in_8_bits(linear: torch.nn.Linear) -> torch.nn.Module:
    return bitsandbytes.nn.Linear8bitLt(
        linear.in_features, linear.out_features, bias=False, has_fp16_weights=False
    )


def in_4_bits(linear: torch.nn.Linear) -> torch.nn.Module:
    return bitsandbytes.nn.Linear4bit(
        linear.in_features, linear.out_features, bias=False, compute_dtype=torch.float32
    )


def by_bitsandbytes(make: Layer) -> Callable[[torch.nn.Module], None]:
    def quantize(model: torch.nn.Module) -> None:
        for name, linear in list(model.named_modules()):
            if isinstance(linear, torch.nn.Linear) and name != "lm_head":
                layer = make(linear)
                layer.load_state_dict(linear.state_dict())
                model.set_submodule(name, layer.to("cpu"))  # quantizes

    return quantize


def by_torchao(model: torch.nn.Module) -> None:
    quantize_(model, Int8WeightOnlyConfig())


def training(quantize: Callable[[torch.nn.Module], None]) -> Callable[[], Trained]:
    def train() -> Trained:
        base = llama()
        quantize(base)
        torch.manual_seed(2)
        targets = ["q_proj", "v_proj", "up_proj", "down_proj"]
        lora = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=targets)
        model = peft.get_peft_model(base, lora).train()
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        optimizer = torch.optim.AdamW(trained.values(), lr=1e-2)
        loader = torch.utils.data.DataLoader(Texts(8 * STEPS), batch_size=8)
        losses = losses_of(model, optimizer, loader)
        return Trained(losses, copies(trained))

    return train


@pytest.mark.parametrize("fraction", [0.6, 0.3])
@pytest.mark.parametrize(
    ("name", "quantize"),
    [("torchao, int8", by_torchao), ("bitsandbytes, int8", by_bitsandbytes(in_8_bits))],
)
def test_8_bits(name: str, quantize: Callable[[torch.nn.Module], None], fraction: float) -> None:
    run = check(f"{name}, LoRA{', 30 %' * (fraction == 0.3)}", training(quantize), fraction)
    assert run.stats().escapes == 0


@pytest.mark.filterwarnings("ignore:recoup. a tensor's address is taken")
def test_results_of_4_bits_escape(tmp_path: Path) -> None:
    """Their kernels get addresses, so values computed from them stay, or go to a spill tier."""
    train = training(by_bitsandbytes(in_4_bits))
    run = check("bitsandbytes, nf4, LoRA, 80 %", train, 0.8)
    assert run.stats().escapes > 0
    half = int(0.5 * peak_of(train))
    with pytest.raises(recoup.OutOfBudgetError), recoup.budget(half):
        train()
    with recoup.budget(half, spill="1GiB", spill_dir=tmp_path) as tier:
        squeezed = train()
    assert_same(train(), squeezed)
    assert tier.stats().spills > 0 and tier.stats().peak_bytes <= half
