"""Compares ways to generate tokens with a model that is larger than the memory for it.

    python bench/generation.py --budget 700MB --tokens 24 --repeats 3 --folder /var/tmp

Needs transformers, and for accelerate's disk offload accelerate. Each way runs in a process of its
own, and the ways take turns:

    plain       plain PyTorch, without a limit of memory
    recoup      recoup with a spill tier in the folder
    unplanned   the same with planning="off": no value is read before an op needs it
    accelerate  accelerate's disk offload; the files stay in the kernel's page cache, which is no
                part of the budget
    uncached    the same, but the files are dropped from the page cache after each layer, as the
                kernel does when memory is short

The model has the shape of Llama and random weights. It is greedy, so all ways must give the same
tokens. The time of a token is the median over the second half of the tokens.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import parser_of, say

import recoup
from recoup._memory.sizes import parse_bytes
from recoup.bench.harness.processes import call
from recoup.bench.harness.tables import print_rows
from recoup.bench.harness.turns import in_turns

PROMPT = 16
WAYS = ("plain", "recoup", "unplanned", "accelerate", "uncached")


def make_model(layers: int) -> Any:
    """The model; it has 113 MB a layer and 197 MB of embeddings."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=1536,
        intermediate_size=4096,
        num_hidden_layers=layers,
        num_attention_heads=12,
        num_key_value_heads=12,
        vocab_size=16_000,
        max_position_embeddings=512,
    )
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def generate(model: Any, tokens: int) -> dict[str, Any]:
    """Generates tokens greedily. Returns them, and the time of each in seconds."""
    current, past = torch.arange(1, PROMPT + 1)[None], None
    found, seconds = [], []
    for _ in range(tokens):
        start = time.perf_counter()
        result = model(input_ids=current, past_key_values=past, use_cache=True)
        past = result.past_key_values
        current = result.logits[:, -1:].argmax(-1)
        found.append(int(current.item()))
        seconds.append(time.perf_counter() - start)
    return {"tokens": found, "seconds": seconds}


def with_recoup(options: argparse.Namespace, planning: Any) -> dict[str, Any]:
    model = make_model(options.layers)
    with recoup.budget(
        options.budget,
        spill="64GiB",
        spill_dir=options.folder,
        options=recoup.Options(planning=planning),
    ) as run:
        result = generate(model, options.tokens)
        stats = run.stats()
        del model
    result["read_bytes"] = stats.fetched_bytes / options.tokens
    result["ahead"] = stats.fetched_ahead_bytes / max(stats.fetched_bytes, 1)
    return result


def with_accelerate(options: argparse.Namespace, *, uncached: bool) -> dict[str, Any]:
    from accelerate import dispatch_model, infer_auto_device_map

    model = make_model(options.layers)
    limits = {"cpu": parse_bytes(options.budget), "disk": 1 << 50}
    where = infer_auto_device_map(
        model, max_memory=limits, no_split_module_classes=["LlamaDecoderLayer"]
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        model = dispatch_model(
            model, where, main_device="cpu", offload_dir=folder, force_hooks=True
        )
        files = list(Path(folder).glob("*.dat"))
        if uncached:
            for layer in model.model.layers:
                layer.register_forward_hook(lambda *_: drop_from_cache(files))
        drop_from_cache(files)
        return generate(model, options.tokens)


def drop_from_cache(files: list[Path]) -> None:
    """Drops the files from the kernel's page cache."""
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run_way(options: argparse.Namespace) -> dict[str, Any]:
    """Runs the way in this process."""
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "plain": lambda: generate(make_model(options.layers), options.tokens),
        "recoup": lambda: with_recoup(options, "background"),
        "unplanned": lambda: with_recoup(options, "off"),
        "accelerate": lambda: with_accelerate(options, uncached=False),
        "uncached": lambda: with_accelerate(options, uncached=True),
    }
    return ways[options.way]()


def compare(options: argparse.Namespace) -> int:
    """Runs all ways in turn, and prints a table. Returns the exit code."""

    def in_process(way: str) -> dict[str, Any]:
        say(f"{way} ...")
        return call([sys.executable, __file__, *sys.argv[1:], "--way", way]).result()

    results = in_turns(options.repeats, {way: partial(in_process, way) for way in options.ways})
    expected = results[options.ways[0]][0]["tokens"]
    rows = []
    for way, runs in results.items():
        late = (statistics.median(run["seconds"][options.tokens // 2 :]) for run in runs)
        whole = statistics.median(sum(run["seconds"]) for run in runs)
        copies = {"read_bytes": runs[0].get("read_bytes"), "ahead": runs[0].get("ahead")}
        rows.append({"way": way, "token": statistics.median(late), "whole": whole, **copies})
    columns = {
        "": "{way}",
        "s a token": "{token:.2f}",
        "s of all": "{whole:.1f}",
        "read a token": "{read_bytes:,.0fMB}",
        "read ahead": "{ahead:.0%}",
    }
    print_rows("", columns, rows)
    is_same = all(run["tokens"] == expected for runs in results.values() for run in runs)
    print("The tokens are the same." if is_same else "THE TOKENS DIFFER.")
    return 0 if is_same else 1


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--budget", default="700MB", help="(default: 700MB)")
    parser.add_argument("--layers", type=int, default=10, help="(default: 10: a model of 1.33 GB)")
    parser.add_argument("--tokens", type=int, default=24, help="(default: 24)")
    parser.add_argument("--repeats", type=int, default=3, help="(default: 3)")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="(default: /var/tmp)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--way", choices=WAYS, help="run this way in this process only")
    options = parser.parse_args()
    if options.way is None:
        return compare(options)
    print(json.dumps(run_way(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
