"""Models that libraries load from files train in 40 % of their peak, with equal bits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import diffusers
import peft
import pytest
import sentence_transformers
import torch
import transformers

import recoup
from compare import same_bits
from recoup.bench.nets.transformer_nets import bert

Losses = list[torch.Tensor]
Program = Callable[[], Losses]

IDS = torch.arange(8 * 128).reshape(8, 128) % 500


def _bert() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return cast(transformers.PreTrainedModel, bert(500, width=64, depth=4, length=128))


def _steps(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Losses:
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-3)
    torch.manual_seed(1)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.detach())
    return [*losses, *(p.detach() for p in trained)]


def _language(model: Any) -> Losses:
    return _steps(model, lambda: model(input_ids=IDS, labels=IDS).loss)


def pretrained(folder: Path, **options: Any) -> Program:
    _bert().save_pretrained(folder)
    return lambda: _language(transformers.BertForMaskedLM.from_pretrained(folder, **options))


def sharded(folder: Path) -> Program:
    _bert().save_pretrained(folder, max_shard_size="300KB")
    return lambda: _language(transformers.BertForMaskedLM.from_pretrained(folder))


def low_memory(folder: Path) -> Program:
    return pretrained(folder, low_cpu_mem_usage=True)


def placed(folder: Path) -> Program:
    return pretrained(folder, device_map="cpu")


def tied(folder: Path) -> Program:
    """The embedding is also the last layer's weight: two parameters of one storage."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=64, n_layer=4, n_head=4, vocab_size=500, n_positions=128
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return lambda: _language(transformers.GPT2LMHeadModel.from_pretrained(folder))


def adapter(folder: Path) -> Program:
    _bert().save_pretrained(folder / "base")
    config = peft.LoraConfig(target_modules=["query", "value"], r=4, init_lora_weights="gaussian")
    base = transformers.BertForMaskedLM.from_pretrained(folder / "base")
    peft.get_peft_model(base, config).save_pretrained(folder / "adapter")

    def program() -> Losses:
        base = transformers.BertForMaskedLM.from_pretrained(folder / "base")
        model = peft.PeftModel.from_pretrained(base, folder / "adapter", is_trainable=True)
        return _language(model)

    return program


def diffusion(folder: Path) -> Program:
    torch.manual_seed(0)
    diffusers.UNet2DModel(
        sample_size=16,
        block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    ).save_pretrained(folder)
    torch.manual_seed(2)
    images = torch.randn(16, 3, 16, 16)
    times = torch.arange(16)

    def program() -> Losses:
        model = diffusers.UNet2DModel.from_pretrained(folder)
        return _steps(model, lambda: (model(images, times).sample - images).square().mean())

    return program


def sentences(folder: Path) -> Program:
    _bert().bert.save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    texts = [" ".join("abcdefghijklmnopqrstuvwxyz"[i:] * 4) for i in range(8)]

    def program() -> Losses:
        torch.manual_seed(3)  # its pooler is not in the file
        # With mean pooling.
        model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        tokens = model.tokenize(texts)
        return _steps(model, lambda: model(tokens)["sentence_embedding"].square().mean())

    return program


MAKERS = [pretrained, sharded, low_memory, placed, tied, adapter, diffusion, sentences]


@pytest.mark.parametrize("spill", [None, "1GiB"])
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_loaded_model_trains_in_40_percent(
    make: Callable[[Path], Program], spill: str | None, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    program = make(tmp_path / "model")
    plain = program()
    with recoup.budget("8GiB") as run:
        program()
    options: dict[str, Any] = {} if spill is None else {"spill": spill, "spill_dir": tmp_path}
    with recoup.budget(run.stats().peak_bytes * 2 // 5, **options) as run:
        got = program()
        assert len(got) == len(plain) and all(map(same_bits, got, plain))
    assert run.stats().replays > 0
