"""Random programs, run plainly and under a budget, compared bit for bit.

    python random_programs.py --seeds 0:200 [--lines 100]    one JSON line a seed
    python random_programs.py --seeds 17 --show              print the program of a seed

A program is a list of Python lines, each one statement over the tensors t0, t1, ...; the generator
runs each line as it writes it, so that it knows shapes. Some lines fail, which must look the same
in both runs. Each seed runs in a forked child, so a crash or a hang costs that seed only. A
program that fails is cut down, line by line, to one that still fails.
"""

import argparse
import copy
import io
import json
import os
import pickle
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch._decomp.decompositions_for_jvp  # loaded on first use, which would be in each child
import torch._dynamo
import torch.nn.functional as F

import recoup
from differential import bits, check

SECONDS_A_PROGRAM = 60
MAX_TRIALS = 300
MAX_POOL = 14
MAX_NUMEL = 4096
ENOUGH_BYTES = 2**28  # far more than any program here needs
POLICIES = ("dtr", "dtr-eq", "dtr-local", "lru", "largest", "msps", "random")

# Tags of lines that cannot be run again after they ran out of memory half way.
ONCE = "  # once"


# ---- generation ----


class Generator:
    """Writes a program and runs it plainly while doing so."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.env = namespace(None)
        self._count = 0
        self._kinds = [(kind, weight) for weight, kinds in KINDS.items() for kind in kinds]

    def program(self, length: int) -> list[str]:
        lines = [f"torch.manual_seed({self._random.randrange(1000)}){ONCE}"]
        lines += [f"{self.new()} = torch.randn(16, 32){ONCE}" for _ in range(4)]
        for line in lines:
            execute_line(line, self.env)
        while len(lines) < length:
            kinds, weights = zip(*self._kinds, strict=True)
            kind = self._random.choices(kinds, weights)[0]
            line = kind(self)
            if line is None:
                continue
            try:
                execute_line(line, self.env)
            except Exception:  # it is part of the program
                pass
            lines.append(line)
            if len(self.tensors()) > MAX_POOL or self._random.random() < 0.05:
                lines.append(self.delete())
                execute_line(lines[-1], self.env)
            if self._random.random() < 0.06:
                lines.append("note()")
        return [*lines, "note()"]

    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            name: value
            for name, value in self.env.items()
            if isinstance(value, torch.Tensor) and value.layout == torch.strided
        }

    def delete(self) -> str:
        names = sorted(self.tensors())
        big = [name for name in names if self.env[name].numel() > MAX_NUMEL]
        gone = set(self._random.sample(names, len(names) // 3)) | set(big[:2])
        return f"del {', '.join(sorted(gone))}"

    def choice(self, options: Any) -> Any:
        return self._random.choice(list(options))

    def number(self) -> float:
        return round(self._random.uniform(-2, 2), 2)

    def new(self) -> str:
        """A fresh name, or now and then one that is taken, whose tensor dies."""
        if self._count > 4 and self._random.random() < 0.25:
            return str(self.choice(sorted(self.tensors()) or ["t0"]))
        self._count += 1
        return f"t{self._count - 1}"

    def any(self, wanted: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        names = []
        for name, tensor in sorted(self.tensors().items()):
            try:
                if 0 < tensor.numel() <= MAX_NUMEL and wanted(tensor):
                    names.append(name)
            except RuntimeError:  # autograd says that a write has made this view useless
                continue
        return self.choice(names) if names else None

    def floating(self, dim: int | None = None) -> str | None:
        return self.any(lambda t: t.dtype == torch.float32 and dim in (None, t.dim()))

    def like(self, name: str) -> str | None:
        """Another name for a tensor of the same shape and dtype; perhaps the same tensor."""
        shape, dtype = self.env[name].shape, self.env[name].dtype
        return self.any(lambda t: t.shape == shape and t.dtype == dtype)


Kind = Callable[[Generator], "str | None"]


def shape(g: Generator) -> str:
    return str(g.choice(["16, 32", "32, 16", "16, 16", "32, 32", "8, 64", "512", "4, 8, 16"]))


def factory(g: Generator) -> str:
    s = shape(g)
    makers = [
        f"torch.zeros({s})",
        f"torch.ones({s})",
        f"torch.full(({s},), {g.number()})",
        "torch.arange(512.0).reshape(16, 32)",
        "torch.eye(32)",
        "torch.linspace(-1, 1, 512)",
        f"torch.empty({s}).fill_({g.number()})",
        "torch.tensor([[0.5 * i] * 32 for i in range(16)])",
        "torch.tril(torch.ones(32, 32))",
    ]
    return f"{g.new()} = {g.choice(makers)}"


def random_factory(g: Generator) -> str:
    s = shape(g)
    makers = [
        f"torch.randn({s})",
        f"torch.rand({s})",
        f"torch.randn({s}, requires_grad=True)",
        f"torch.randint(0, 8, ({s},))",
        f"torch.randn({s}, generator=gen)",
        f"torch.randn({s}, dtype=torch.float64)",
        f"torch.randn({s}, dtype=torch.complex64)",
        "torch.randperm(512)",
    ]
    return f"{g.new()} = {g.choice(makers)}{ONCE}"


def view(g: Generator) -> str | None:
    x = g.any()
    y = g.any(lambda t: t.dim() == 2 and min(t.shape) >= 4)
    if x is None or y is None:
        return None
    views = [
        f"{x}.reshape(-1)",
        f"{x}.view(-1)",
        f"{x}.detach()",
        f"{x}.unsqueeze(0).expand(3, *{x}.shape)",
        f"{x}[1:]",
        f"{x}[..., ::2]",
        f"{x}.squeeze()",
        f"{x}.view_as({x})",
        f"{y}.t()",
        f"{y}[1:3]",
        f"{y}[:, 1:]",
        f"{y}[2]",
        f"{y}.diagonal()",
        f"{y}.chunk(2)[1]",
        f"{y}.as_strided((4, 4), (1, 2))",
        f"{y}.unfold(0, 4, 2)",
        f"{y}.transpose(0, 1)",
        f"{y}.split(2, dim=1)[0]",
        f"{y}.movedim(0, 1).unsqueeze(1)",
        f"{y}.conj()",
        x,
        x,
    ]
    return f"{g.new()} = {g.choice(views)}"


def two_views(g: Generator) -> str | None:
    x = g.any(lambda t: t.dim() == 2 and t.shape[0] % 2 == 0)
    return None if x is None else f"{g.new()}, {g.new()} = {x}.chunk(2)"


def unary(g: Generator) -> str | None:
    x = g.floating()
    if x is None:
        return None
    calls = [
        f"{x}.relu()",
        f"{x}.tanh()",
        f"{x}.sigmoid()",
        f"{x}.clamp(-1, 1)",
        f"{x}.softmax(-1)",
        f"{x}.log_softmax(0)",
        f"{x}.cumsum(0)",
        f"{x}.sort(-1).values",
        f"{x}.sort(0)[1]",
        f"{x}.sum(0)",
        f"{x}.mean(-1, keepdim=True)",
        f"{x}.abs().sqrt()",
        f"{x} * {g.number()}",
        f"{x} + {g.number()}",
        f"1 / (1 + {x} * {x})",
        f"F.gelu({x})",
        f"F.layer_norm({x}, {x}.shape[-1:])",
        f"{x}.to(torch.bfloat16)",
        f"{x}.double()",
        f"{x}.to(torch.int32)",
        f"{x}.clone()",
        f"{x}.contiguous()",
        f"{x}.flip(0)",
        f"{x}.roll(1, 0)",
        f"{x}.topk(2)[0]",
        f"{x}.argsort()",
        f"{x}.max(-1)[0]",
        f"{x} > 0",
        f"{x}[{x} > 0]",
        f"torch.nonzero({x} > 0)",
        f"{x}.masked_select({x} < 0.5)",
        f"torch.unique({x}.round())",
        f"{x}.new_zeros(16, 16)",
        f"torch.ones_like({x})",
        f"{x}.std(0)",
        f"torch.func.vmap(torch.sin)({x})",
        f"torch.func.grad(lambda a: (a.sin() ** 2).sum())({x}.detach())",
        f"torch.fft.rfft({x})",
        f"F.pad({x}, (1, 1))",
    ]
    return f"{g.new()} = {g.choice(calls)}"


def other_dtype(g: Generator) -> str | None:
    x = g.any(lambda t: t.dtype != torch.float32)
    if x is None:
        return None
    calls = [
        f"{x}.float()",
        f"{x} + 1",
        f"{x} * 2",
        f"{x}.sum(0)",
        f"{x}.clone()",
        f"{x}.to(torch.float32) / 2",
    ]
    return f"{g.new()} = {g.choice(calls)}"


def several_results(g: Generator) -> str | None:
    x = g.floating()
    if x is None:
        return None
    calls = [f"{x}.sort(-1)", f"{x}.max(0)", f"torch.frexp({x})", f"torch.std_mean({x}, 0)"]
    return f"{g.new()}, {g.new()} = {g.choice(calls)}"


def binary(g: Generator) -> str | None:
    x = g.floating()
    if x is None:
        return None
    y = g.like(x)
    calls = [
        f"{x} + {y}",
        f"{x} - {y}",
        f"{x} * {y}",
        f"torch.maximum({x}, {y})",
        f"torch.where({x} > 0, {x}, {y})",
        f"torch.cat([{x}, {y}])",
        f"torch.stack([{x}, {y}])",
        f"torch.lerp({x}, {y}, 0.3)",
        f"torch.addcmul({x}, {y}, {y}, value=0.1)",
        f"torch._foreach_mul([{x}, {y}], 0.5)[1]",
        f"torch.func.jvp(torch.tanh, ({x}.detach(),), ({y}.detach(),))[1]",
    ]
    return f"{g.new()} = {g.choice(calls)}"


def matrix(g: Generator) -> str | None:
    x = g.floating(dim=2)
    if x is None:
        return None
    columns = g.env[x].shape[1]
    y = g.any(lambda t: t.dim() == 2 and t.shape[0] == columns and t.dtype == torch.float32)
    calls = [
        f"{x} @ {x}.t()",
        f"F.linear({x}, {x})",
        f"{x}.unsqueeze(0) @ {x}.t()",
        f"F.conv2d({x}[None, None], torch.ones(2, 1, 3, 3), padding=1)[0, 1]",
        f"F.max_pool2d({x}[None], 2)[0]",
        f"F.avg_pool2d({x}[None], 2)[0]",
        f"{x}.gather(1, torch.arange({x}.shape[0])[:, None] % {x}.shape[1])",
        f"{x}[torch.tensor([1, 0, 1])]",
        f"{x}.index_select(0, torch.tensor([0, 2, 1]))",
        f"F.scaled_dot_product_attention(*[{x}[None, None]] * 3)[0, 0]",
        f"torch.linalg.qr({x})[0]",
    ]
    if y is not None:
        calls += [f"{x} @ {y}"] * 4
        calls += [f"torch.addmm({x} @ {y}, {x}, {y})"]
    call = g.choice(calls)
    if g._random.random() < 0.1:
        return f"with torch.autocast('cpu', torch.bfloat16): {g.new()} = {call}"
    return f"{g.new()} = {call}"


def in_place(g: Generator) -> str | None:
    x = g.floating()
    if x is None:
        return None
    y = g.like(x)
    calls = [
        f"{x}.add_({y})",
        f"{x}.add_({g.number()})",
        f"{x}.mul_(0.5)",
        f"{x}.mul_({y})",
        f"{x}.copy_({y})",
        f"{x}.zero_()",
        f"{x}.fill_({g.number()})",
        f"{x}.clamp_(-1, 1)",
        f"{x}.relu_()",
        f"{x}.tanh_()",
        f"{x}.sub_({x}.mean())",
        f"{x}.masked_fill_({x} > 1, 0.5)",
        f"{x}.addcmul_({y}, {y}, value=0.1)",
        f"{x}[1:].mul_(2)",
        f"{x}[..., ::2].add_(1)",
        f"{x}[0] = {g.number()}",
        f"{x}[{x} > 0] = 0.25",
        f"{x}.index_put_((torch.tensor([0, 1]),), torch.tensor(0.5))",
        f"{x}.index_add_(0, torch.tensor([0, 0]), {x}[:2].clone())",
        f"{x}.index_fill_(0, torch.tensor([1]), 2)",
        f"{x}.unsqueeze(0).sub_(0.1)",
        f"{x}.cumsum_(0)",
        f"torch.add({x}, 1, out={y})",
        f"torch.mul({x}, {y}, out={x})",
        f"torch._foreach_add_([{x}, {y}], 0.5)",
        f"{x}.swapaxes_(0, -1)",
        f"{x}.unsqueeze_(0)",
        f"{x}.squeeze_()",
        f"F.relu({x}, inplace=True)",
        f"F.threshold_({x}, 0.1, 0.0)",
    ]
    if g.env[x].dim() == 2:
        calls += [
            f"{x}.t().add_(1)",
            f"{x}.diagonal().zero_()",
            f"{x}.transpose(0, 1)[0].fill_(3)",
            f"{x}.t_()",
            f"{x}[:, 1] = {x}[:, 0]",
            f"{x}.fill_diagonal_(1)",
            f"{x}.scatter_(1, torch.zeros({x}.shape[0], 1, dtype=torch.long), 2.0)",
            f"{x}.addmm_({x}, torch.eye({x}.shape[1]))",
        ]
    call = g.choice(calls)
    if g.env[x].requires_grad or g._random.random() < 0.2:
        return f"with torch.no_grad(): {call}"
    return str(call)


def into_out(g: Generator) -> str | None:
    x = g.floating()
    return None if x is None else f"{g.new()} = torch.sin({x}.detach(), out=torch.zeros(0))"


def chance(g: Generator) -> str | None:
    x = g.floating()
    if x is None:
        return None
    lines = [
        f"{g.new()} = F.dropout({x}, 0.3)",
        f"{g.new()} = torch.randn_like({x})",
        f"{g.new()} = torch.bernoulli({x}.sigmoid())",
        f"{g.new()} = F.rrelu({x}, training=True)",
        f"{g.new()} = torch.multinomial({x}.detach().abs().reshape(-1)[:64] + 0.1, 32)",
        f"with torch.no_grad(): {x}.normal_()",
        f"with torch.no_grad(): {x}.uniform_(-1, 1)",
        f"with torch.no_grad(): {x}.bernoulli_(0.4)",
        f"with torch.no_grad(): {x}.add_(torch.randn_like({x}))",
        f"{x}.normal_(generator=gen)",
        f"F.dropout({x}, 0.2, inplace=True)",
        f"torch.manual_seed({g._random.randrange(1000)})",
        "gen.manual_seed(5)",
    ]
    return str(g.choice(lines)) + ONCE


def error(g: Generator) -> str | None:
    x = g.floating()
    if x is None:
        return None
    lines = [
        f"{g.new()} = {x} @ torch.ones(7, 3, 5)",
        f"{x}.view(13, -1)",
        f"{x}.add_(torch.ones(5, 7))",
        f"{g.new()} = {x}.index_select(0, torch.tensor([9999]))",
        f"{x}.detach().index_fill_(0, torch.tensor([0, 9999]), 1)",
        f"{g.new()} = torch.linalg.cholesky(-torch.eye(16))",
        "raise ValueError('mine')",
        "missing + 1",
        f"{g.new()} = torch.cat([{x}, torch.ones(3, 3, 3, 3)])",
        f"{x}.copy_(torch.ones(3, 1, 5, 9))",
        f"{g.new()} = {x}.to('nowhere')",
        f"torch._foreach_add_([{x}], [torch.ones(5, 7)])",
    ]
    return str(g.choice(lines))


def wants_gradient(t: torch.Tensor) -> bool:
    return t.requires_grad and t.dtype == torch.float32


def autograd(g: Generator) -> str | None:
    leaf = g.any(lambda t: t.is_leaf and t.dtype == torch.float32)
    x = g.any(wants_gradient)
    p = g.any(lambda t: t.is_leaf and t.grad is not None)
    lines = [f"{leaf}.requires_grad_()"] * 2 if leaf else []
    if x is not None:
        keep = g.choice(["", "retain_graph=True"])
        lines += [
            f"({x} * {x}).tanh().sum().backward({keep}){ONCE}",
            f"{x}.sum().backward({keep}){ONCE}",
            f"({x}.softmax(-1) * {g.like(x)}.detach()).mean().backward({keep}){ONCE}",
            f"{g.new()} = torch.autograd.grad(({x} ** 3).sum(), {x})[0]{ONCE}",
            f"{g.new()} = torch.autograd.grad(({x} ** 3).sum(), {x}, create_graph=True)[0]{ONCE}",
            f"{x}.register_hook(lambda grad: grad * 2)",
            f"{x}.detach_()",
        ]
    if p is not None:
        lines += [
            f"with torch.no_grad(): {p}.sub_({p}.grad, alpha=0.1)",
            f"{p}.grad = None",
            f"{p}.grad.zero_()",
            f"{g.new()} = {p}.grad",
            f"torch.nn.utils.clip_grad_norm_([{p}], 0.5)",
        ]
    return str(g.choice(lines)) if lines else None


def rebind(g: Generator) -> str | None:
    x = g.floating()
    if x is None:
        return None
    y = g.any(lambda t: t.dtype == torch.float32)
    lines = [
        f"{x}.data = {y}.detach()",
        f"{x}.data = {y}.detach().clone()",
        f"{x}.detach().set_({y}.detach())",
        f"{x}.detach().set_({y}.detach().untyped_storage(), 0, (4, 8), (8, 1))",
        f"{x}.resize_(4, 8)",
        f"{x}.detach().resize_(2, 3)",
        f"torch.utils.swap_tensors({x}, {y})",
        f"{g.new()} = torch._lazy_clone({x})",
    ]
    return str(g.choice(lines))


def outside(g: Generator) -> str | None:
    x = g.any(lambda t: t.dtype in (torch.float32, torch.float64, torch.int64))
    if x is None:
        return None
    lines = [
        f"arr = {x}.detach().numpy()",
        f"arr = np.asarray({x}.detach())",
        "arr += 1",
        "arr[..., 0] = 5",
        "arr *= 0.5",
        "arr = None",
        f"{g.new()} = torch.from_numpy(arr)",
        f"{g.new()} = torch.from_dlpack({x}.detach())",
        f"number = float({x}.detach().double().sum())",
        f"number = {x}.tolist()",
        f"number = str({x}.detach())",
        f"{g.new()} = copy.deepcopy({x}.detach())",
        f"{g.new()} = pickle.loads(pickle.dumps({x}.detach()))",
        f"{g.new()} = saved_and_loaded({x}.detach())",
        f"number = {x}.data_ptr() % 64 if {x}.storage_offset() == 0 else 0",
    ]
    return str(g.choice(lines))


def evict(g: Generator) -> str | None:
    x = g.any()
    return None if x is None else f"evict({x})"


def keep(g: Generator) -> str | None:
    x = g.any()
    return None if x is None else g.choice([f"materialize({x})", f"pin({x})", "unpin()", "unpin()"])


KINDS: dict[int, list[Kind]] = {
    2: [two_views, several_results, error, into_out, other_dtype],
    3: [rebind, outside, keep],
    6: [factory, random_factory, matrix, chance],
    9: [binary, autograd],
    12: [view, in_place, evict],
    16: [unary],
}


# ---- running ----


def saved_and_loaded(tensor: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    loaded = torch.load(file)
    assert isinstance(loaded, torch.Tensor)
    return loaded


def nothing(*_: Any) -> None:
    pass


def namespace(run: Any) -> dict[str, Any]:
    """What the lines of a program see. Without `run` the calls to recoup do nothing."""
    pins: list[Any] = []

    def pin(tensor: torch.Tensor) -> None:
        pinned = recoup.pin(tensor)
        pinned.__enter__()
        pins.append(pinned)

    def unpin() -> None:
        if pins:
            pins.pop().__exit__(None, None, None)

    return {
        "torch": torch,
        "F": F,
        "np": np,
        "copy": copy,
        "pickle": pickle,
        "gen": torch.Generator().manual_seed(5),
        "saved_and_loaded": saved_and_loaded,
        "arr": np.zeros((4, 4), np.float32),
        "evict": recoup.evict if run else nothing,
        "materialize": recoup.materialize if run else nothing,
        "pin": pin if run else nothing,
        "unpin": unpin if run else nothing,
        "note": nothing,
    }


def execute_line(line: str, env: dict[str, Any]) -> None:
    exec(compile(line, "<program>", "exec"), env)


def look(env: dict[str, Any]) -> dict[str, Any]:
    """The bits of everything that the program holds."""
    seen: dict[str, Any] = {}
    for name, value in list(env.items()):
        if isinstance(value, torch.Tensor):
            version = None if value.is_inference() else value._version
            try:
                seen[name] = (*bits(value), value.requires_grad, value.is_leaf, version)
                if value.is_leaf and value.grad is not None:
                    seen[f"{name}.grad"] = bits(value.grad)
            except recoup.OutOfBudgetError:
                raise
            except RuntimeError as error:  # a view that a write to its base has made useless
                if "recoup" in str(error):
                    raise
                seen[name] = str(error)
        elif isinstance(value, np.ndarray):
            seen[name] = (value.shape, value.tobytes())
    seen["gen"] = bits(env["gen"].get_state())
    seen["number"] = repr(env.get("number"))
    return seen


class Wrong(Exception):  # noqa: N818
    """The program does not do what it does without recoup."""


@dataclass
class Trace:
    """What one run of a program showed: exceptions and bits by line, and where it had to stop."""

    events: dict[int, str] = field(default_factory=dict)
    notes: dict[int, dict[str, Any]] = field(default_factory=dict)
    stopped: int | None = None
    grown: int = 0


def run_plain(lines: list[str]) -> Trace:
    trace, env = Trace(), namespace(None)
    run_lines(lines, env, trace, None, tight=False)
    trace.notes[len(lines)] = look(env)
    return trace


def run_lines(lines: list[str], env: dict[str, Any], trace: Trace, run: Any, tight: bool) -> None:
    for index, line in enumerate(lines):
        while True:
            try:
                if line == "note()":
                    trace.notes[index] = look(env)
                    if run:
                        check(run)
                else:
                    execute_line(line, env)
            except recoup.OutOfBudgetError as error:
                if not tight:
                    raise Wrong(f"line {index}: out of an ample budget: {error}") from error
                check(run)
                if line.endswith(ONCE):
                    trace.stopped = index
                    return
                trace.grown += 1
                now = run.stats().budget_bytes
                if now > ENOUGH_BYTES:
                    raise Wrong(f"line {index}: no budget is enough: {error}") from error
                run._engine.grow(max(error.enough_bytes, now + now // 8))
                continue
            except Exception as error:
                trace.events[index] = type(error).__name__
                if run and "recoup" in str(error).lower():
                    raise Wrong(f"line {index}: {type(error).__name__}: {error}") from error
            break


def compare(index: int, plain: dict[str, Any], watched: dict[str, Any], ignore: str = "") -> None:
    names = [
        name
        for name in sorted({*plain, *watched})
        if plain.get(name) != watched.get(name) and not (ignore and name.endswith(ignore))
    ]
    if names:
        first = names[0]
        heads = [
            [part for part in seen.get(first, ()) if not isinstance(part, bytes)]
            for seen in (plain, watched)
        ]
        raise Wrong(f"before line {index}: {names} differ; {first}: {heads[0]} and {heads[1]}")


def differential(lines: list[str], options: dict[str, Any], tight: bool) -> Any:
    """Raises Wrong, or returns the run's statistics."""
    plain = run_plain(lines)
    trace = Trace()
    try:
        with recoup.budget(**options) as run:
            env = namespace(run)
            run_lines(lines, env, trace, run, tight)
            check(run)
    except recoup.OutOfBudgetError as error:
        if not tight:
            raise Wrong(f"scope exit: out of an ample budget: {error}") from error
        try:
            run.finish(ENOUGH_BYTES)
        except recoup.OutOfBudgetError as again:
            raise Wrong(f"scope exit: no budget is enough: {again}") from again
    for index, seen in trace.notes.items():
        compare(index, plain.notes[index], seen)
    end = len(lines) if trace.stopped is None else trace.stopped
    events = {index: name for index, name in plain.events.items() if index < end}
    if trace.events != events:
        raise Wrong(f"exceptions {sorted(set(trace.events.items()) ^ set(events.items()))}")
    if trace.stopped is None:
        compare(end, plain.notes[end], look(env))
    else:
        # The line that failed may have drawn random numbers and added to gradients.
        before = run_plain(lines[:end]).notes[end]
        seen = look(env)
        seen["gen"] = before["gen"]
        compare(end, before, seen, ignore=".grad")
    return run.stats()


def choose_options(seed: int, peak_bytes: int) -> tuple[dict[str, Any], bool]:
    chance = random.Random(seed * 2 + 1)
    options: dict[str, Any] = {
        "policy": chance.choice(POLICIES),
        "usefulness": chance.random() < 0.8,
        "replay_order": chance.choice(["memory", "memory", "recursive"]),
        "verify": chance.random() < 0.2,
        "cost_model": "bytes",  # times would make another run of every run
        "seed": chance.randrange(100),
        "max_replay_ratio": 0,
    }
    tight = chance.random() < 0.7
    if tight:
        options["budget"] = max(16384, int(peak_bytes * chance.uniform(0.3, 1.0)))
        if chance.random() < 0.3:
            options["max_replay_ratio"] = 10.0
    else:
        options["budget"] = ENOUGH_BYTES
        options["evict_after_op"] = chance.random() < 0.6
    return options, tight


def measure_peak(lines: list[str]) -> int:
    with recoup.budget(ENOUGH_BYTES, cost_model="bytes", max_replay_ratio=0) as run:
        env = namespace(run)
        run_lines(lines, env, Trace(), run, tight=False)
    return int(run.stats().peak_bytes)


# ---- one program in a child of its own ----


def in_child(work: Callable[[], Any]) -> dict[str, Any]:
    """What `work` returns, or how it failed: an exception, a signal, a hang."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            try:
                answer = {"value": work()}
            except Wrong as error:
                answer = {"failure": "wrong", "text": str(error)}
            except BaseException as error:
                answer = {"failure": type(error).__name__, "text": str(error)}
            with os.fdopen(writing, "w") as pipe:
                json.dump(answer, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    previous = signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.alarm(SECONDS_A_PROGRAM)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    hung = signal.alarm(0) == 0
    signal.signal(signal.SIGALRM, previous)
    if text:
        answer = json.loads(text)
        assert isinstance(answer, dict)
        return answer
    failure = "hang" if hung else f"signal {os.WTERMSIG(status)}"
    return {"failure": failure, "text": f"the process ended with status {status}"}


def minimise(lines: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """Drops lines, ever fewer at a time, while the rest still fails."""
    trials = 0
    size = max(1, len(lines) // 2)
    while size >= 1:
        start, dropped = 0, False
        while start < len(lines) and trials < MAX_TRIALS:
            shorter = lines[:start] + lines[start + size :]
            trials += 1
            if fails(shorter):
                lines, dropped = shorter, True
            else:
                start += size
        if not (size == 1 and dropped and trials < MAX_TRIALS):
            size //= 2
    return lines


def write_program(seed: int, length: int) -> list[str]:
    value = in_child(lambda: Generator(seed).program(length))
    if "failure" in value:
        raise RuntimeError(f"seed {seed}: the generator failed: {value}")
    lines = value["value"]
    assert isinstance(lines, list)
    return lines


def run_seed(seed: int, length: int, shrink: bool) -> dict[str, Any]:
    lines = write_program(seed, length)
    options: dict[str, Any] = {"budget": ENOUGH_BYTES}
    tight = False
    answer = in_child(lambda: measure_peak(lines))
    if "failure" not in answer:
        options, tight = choose_options(seed, answer["value"])

        def work() -> dict[str, int]:
            stats = differential(lines, options, tight)
            return {
                name: getattr(stats, name)
                for name in ("op_count", "evictions", "replays", "freezes", "moves", "escapes")
            }

        answer = in_child(work)
    row = {"seed": seed, "lines": len(lines), **answer}
    if "failure" in answer:
        row["options"] = options
        row["program"] = (
            minimise(
                lines,
                lambda shorter: (
                    in_child(lambda: bool(differential(shorter, options, tight))).get("failure")
                    == answer["failure"]
                ),
            )
            if shrink
            else lines
        )
    return row


def seeds_of(text: str) -> Iterator[int]:
    first, _, last = text.partition(":")
    yield from range(int(first), int(last) if last else int(first) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", required=True, help="one seed, or first:end")
    parser.add_argument("--lines", type=int, default=100, help="of each program")
    parser.add_argument("--show", action="store_true", help="only print the programs")
    parser.add_argument("--no-minimise", action="store_true")
    args = parser.parse_args()
    # No thread pools: the process forks for each program.
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for seed in seeds_of(args.seeds):
        if args.show:
            print("\n".join(write_program(seed, args.lines)))
            continue
        start = time.monotonic()
        row = run_seed(seed, args.lines, not args.no_minimise)
        row["seconds"] = round(time.monotonic() - start, 2)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    sys.exit(main())
