"""Small models, from configurations, and data from seeds: nothing is downloaded."""

from typing import Any

import torch
import transformers

SEQUENCE = 128
VOCABULARY = 256


def gpt2(**options: Any) -> transformers.GPT2LMHeadModel:
    """Its activations are many times its parameters. It has dropout."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=SEQUENCE,
        n_embd=64,
        n_layer=4,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        **options,
    )
    return transformers.GPT2LMHeadModel(config)


def llama(**options: Any) -> transformers.LlamaForCausalLM:
    """Its layers are `torch.nn.Linear`, which libraries quantize. It is frozen."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=SEQUENCE,
        **options,
    )
    return transformers.LlamaForCausalLM(config).requires_grad_(False)


class Texts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Made-up sequences with some order in them, to predict the next token of."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(1)
        start = torch.randint(VOCABULARY, (count, 1), generator=generator)
        step = torch.randint(1, 9, (count, 1), generator=generator)
        self.ids = (start + step * torch.arange(SEQUENCE)) % VOCABULARY

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}
