"""Trains GPT-2 in a quarter of the memory it takes: less than its parameters, their gradients and
AdamW's state together.

    python examples/finetune_gpt2.py --layers 4 --width 256 --heads 4    # a minute
    python examples/finetune_gpt2.py                                      # 124 million parameters

The model is that of `transformers` with random weights, so that nothing is downloaded; the text is
the source of Python's standard library, one token per byte. Model and optimizer are made before the
scope, as in any program, and the training loop does not refer to it. Values that do not fit and
cannot be recomputed are written to a file on a disk (`spill=`) and read when an op needs them.

The same training also runs plainly, one after the other to save memory: losses and digests of all
parameters and of the optimizer's state are compared.
"""

import argparse
import gc
import statistics
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from trained import Trained, digests, first_other
from transformers import GPT2Config, GPT2LMHeadModel

import recoup
from recoup.run import free_bytes

TEXT = 500_000  # bytes to learn from
SPILL = "64GiB"  # maximum size of the file, which grows as needed
UNREACHED = free_bytes(torch.device("cpu"))


@dataclass(frozen=True)
class Size:
    """Sizes of the model and its batches; by default those of GPT-2."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50_257
    length: int = 256  # tokens in a sequence
    batch: int = 2


SMALL = Size(layers=4, width=256, heads=4, vocabulary=2_048, length=32, batch=2)


@dataclass(frozen=True)
class Plain:
    """Memory, time and results of plain PyTorch."""

    digests: dict[str, str]
    seconds: float  # a step
    peak_bytes: int  # of tensors
    kept_bytes: int  # parameters, gradients and the optimizer's state


@dataclass(frozen=True)
class Outcome:
    """Result of a training in a budget, compared with the plain one."""

    stats: recoup.Stats
    report: str
    time_ratio: float
    difference: str | None  # the first tensor with another bit


def read_text() -> Tensor:
    """Part of the sources of Python's standard library, as bytes."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= TEXT:
            break
    return torch.frombuffer(text[:TEXT], dtype=torch.uint8).clone()


def make(size: Size, seed: int) -> Trained:
    torch.manual_seed(seed)
    config = GPT2Config(
        n_layer=size.layers,
        n_embd=size.width,
        n_head=size.heads,
        vocab_size=size.vocabulary,
        n_positions=max(size.length, 1024),
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config).train()
    return Trained(model, torch.optim.AdamW(model.parameters(), lr=3e-4))


def train(trained: Trained, size: Size, steps: int, quiet: bool = False) -> None:
    """An ordinary training loop."""
    text = read_text()
    for step in range(steps):
        start = time.perf_counter()
        at = torch.randint(len(text) - size.length - 1, (size.batch, 1))
        tokens = text[at + torch.arange(size.length + 1)].long()
        logits = trained.model(tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        trained.optimizer.zero_grad()
        loss.backward()
        trained.optimizer.step()
        trained.losses.append(loss.item())
        trained.seconds.append(time.perf_counter() - start)
        if not quiet:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


def step_seconds(trained: Trained) -> float:
    """Median time of a step without the first, which warms up."""
    return statistics.median(trained.seconds[1:])


def train_plainly(size: Size, steps: int, seed: int) -> Plain:
    trained = make(size, seed)
    train(trained, size, steps, quiet=True)
    kept = sum(tensor.numel() * tensor.element_size() for tensor in trained.distinct())
    found, seconds = digests(trained), step_seconds(trained)
    del trained
    gc.collect()
    return Plain(found, seconds, peak_of(size, seed), kept)


def peak_of(size: Size, seed: int) -> int:
    """Peak bytes of tensors: two steps in a budget that is never reached. The first step makes the
    optimizer's state."""
    trained = make(size, seed)
    with recoup.budget(UNREACHED) as run:
        train(trained, size, 2, quiet=True)
    return run.stats().peak_bytes


def train_in(
    budget: int | str,
    plain: Plain,
    size: Size,
    steps: int,
    seed: int,
    *,
    spill_dir: str | None = None,
    quiet: bool = True,
) -> Outcome:
    gc.collect()
    trained = make(size, seed)
    with recoup.budget(budget, spill=SPILL, spill_dir=spill_dir) as run:
        train(trained, size, steps, quiet)
        stats, report = run.stats(), run.report()
        run.set_budget(UNREACHED)  # the end of a scope restores all live tensors
    difference = first_other(digests(trained), plain.digests)
    return Outcome(stats, report, step_seconds(trained) / plain.seconds, difference)


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def main() -> int:
    parser = argparse.ArgumentParser(description="Trains GPT-2 in less memory than it keeps.")
    whole = Size()
    parser.add_argument("--layers", type=int, default=whole.layers)
    parser.add_argument("--width", type=int, default=whole.width)
    parser.add_argument("--heads", type=int, default=whole.heads)
    parser.add_argument("--vocabulary", type=int, default=whole.vocabulary, help="256 at least")
    parser.add_argument("--length", type=int, default=whole.length, help="tokens at once")
    parser.add_argument("--batch", type=int, default=whole.batch)
    parser.add_argument("--steps", type=int, default=3, help="at least 2")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fraction", type=float, default=0.25, help="of the plain peak")
    parser.add_argument("--budget", help="bytes, or a size such as 500MB, in place of a fraction")
    parser.add_argument("--spill-dir", help="where the file is: a directory on a fast disk")
    parser.add_argument("--report", action="store_true", help="print recoup's report too")
    args = parser.parse_args()
    if args.steps < 2 or args.vocabulary < 256:
        parser.error("it takes at least 2 steps, and 256 tokens: a byte each")
    size = Size(args.layers, args.width, args.heads, args.vocabulary, args.length, args.batch)

    plain = train_plainly(size, args.steps, args.seed)
    print(f"plain PyTorch   {megabytes(plain.peak_bytes)} of tensors at the most")
    print(f"  keeps         {megabytes(plain.kept_bytes)}: parameters, gradients, AdamW's state")
    budget = args.budget or int(args.fraction * plain.peak_bytes)
    found = train_in(
        budget, plain, size, args.steps, args.seed, spill_dir=args.spill_dir, quiet=False
    )
    if args.report:
        print(found.report)
    stats = found.stats
    print(f"budget          {megabytes(stats.budget_bytes)}")
    print(f"peak            {megabytes(stats.peak_bytes)}")
    print(f"spilled         {megabytes(stats.spilled_bytes)}, {stats.spills:,} times")
    print(f"fetched         {megabytes(stats.fetched_bytes)}, {stats.fetches:,} times")
    print(f"replays         {stats.replays:,}")
    print(f"time of a step  {found.time_ratio:.2f}x of plain PyTorch")
    if found.difference is not None:
        print(f"BITS DIFFER from plain PyTorch, first in: {found.difference}")
        return 1
    print("bits equal to plain PyTorch")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
