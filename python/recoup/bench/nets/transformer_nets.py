"""BERT and GPT-2 of any size, built from the configs of `transformers`."""

from typing import Any

from torch import nn

from recoup.bench.nets.net import from_transformers


def bert(vocabulary: int, width: int, depth: int, *, length: int = 64) -> nn.Module:
    """BERT for masked tokens, with four heads.

    width: features of a token.
    depth: number of layers.
    length: tokens of the longest sequence.
    """
    return from_transformers(
        "BertForMaskedLM",
        "BertConfig",
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=4,
        intermediate_size=4 * width,
        max_position_embeddings=length,
    )


def gpt2(vocabulary: int, width: int, depth: int, **settings: Any) -> nn.Module:
    """GPT-2 with four heads, for sequences of up to 64 tokens, without a cache of keys and values.

    width: features of a token.
    depth: number of layers.
    settings: of GPT2Config.
    """
    return from_transformers(
        "GPT2LMHeadModel",
        "GPT2Config",
        vocab_size=vocabulary,
        n_positions=64,
        n_embd=width,
        n_layer=depth,
        n_head=4,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        **settings,
    )
