"""Attribution of memory and time to modules."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import recoup
from recoup._reporting.moments import chrome_trace
from recoup.bench.flat_options import split

PAGE = 64  # the alignment of sizes in the pool


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.gelu(self.up(self.norm(x)))
        return x + self.drop(self.down(inner))


class Net(nn.Module):
    def __init__(self, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x * self.scale)


def train(model: nn.Module, steps: int = 3, rows: int = 1024) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        x, y = torch.randn(rows, 64), torch.randint(10, (rows,))
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained(
    budget: int | str, build: Callable[[], nn.Module] = Net, **options: Any
) -> tuple[list[float], nn.Module, recoup.Run]:
    """Losses, the model and its run; the model is made inside of the scope."""
    torch.manual_seed(0)
    with recoup.budget(budget, **split(options)) as run:
        model = build()
        losses = train(model)
        run.check()
    return losses, model, run


def sizes_of_kinds(rows: list[recoup.Holder]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        found[row.kind] += row.bytes
    return found


def in_pool(tensors: Any) -> int:
    return sum(-(-each.numel() * each.element_size() // PAGE) * PAGE for each in tensors)


def test_rows_add_up_to_the_peak_and_have_the_right_kinds() -> None:
    _, model, run = trained("64MiB", profile="modules")
    rows = run.holders()
    assert sum(row.bytes for row in rows) == run.stats().peak_bytes
    assert run.attribution() is not None
    kinds = sizes_of_kinds(rows)
    parameters = in_pool(model.parameters())
    assert kinds["parameters"] == parameters
    assert kinds["buffers"] == in_pool(model.buffers())
    # Two moments and one step counter for each parameter.
    steps = PAGE * len(list(model.parameters()))
    assert 2 * parameters <= kinds["optimizer"] <= 2 * parameters + steps + parameters
    assert kinds["activations"] > parameters


def test_modules_have_the_names_of_named_modules() -> None:
    _, model, run = trained("64MiB", profile="modules")
    names = {name for name, _ in model.named_modules()} - {""} | {"Net", "AdamW", ""}
    assert {row.module for row in run.holders()} <= names
    assert {row.module for row in run.work()} <= names
    held = Counter({row.module: row.bytes for row in run.holders(each=True)})
    assert {"blocks.0.up", "blocks.2.down", "head"} <= set(held)
    named = {row.name: row.bytes for row in run.holders(each=True) if row.kind == "parameters"}
    assert named == {name: in_pool([each]) for name, each in model.named_parameters()}


@pytest.mark.parametrize("fraction", [100, 60, 50])
def test_rows_of_work_add_up_to_the_counters(fraction: int) -> None:
    _, _, whole = trained("64MiB")
    budget = whole.stats().peak_bytes * fraction // 100
    _, _, run = trained(budget, profile="modules")
    stats, work = run.stats(), run.work()
    assert sum(row.ops for row in work) == stats.op_count
    assert sum(row.replays for row in work) == stats.replays
    assert sum(row.replay_ns for row in work) == stats.replay_cost_ns
    assert sum(row.evictions for row in work) == stats.evictions
    assert sum(row.evicted_bytes for row in work) == stats.evicted_bytes
    assert fraction == 100 or stats.replays > 0
    assert sum(row.bytes for row in run.holders()) == stats.peak_bytes <= budget


@pytest.mark.parametrize(
    "options", [{"profile": each} for each in ("modules", "lines", "timeline")]
)
def test_attribution_changes_no_bit(options: dict[str, Any]) -> None:
    _, _, whole = trained("64MiB")
    budget = whole.stats().peak_bytes // 2
    plain, expected, _ = trained(budget)
    losses, model, _ = trained(budget, **options)
    assert losses == plain
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_encoder_layer_stays_on_its_fast_path() -> None:
    """A hook in one of its modules would take it off the fast path and change bits."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    x = torch.randn(4, 16, 32)
    with torch.inference_mode():
        expected = layer(x)
        with recoup.budget("16MiB", profile="modules") as run:
            found = layer(x)
            rows = run.holders(each=True)
    assert torch.equal(found, expected)
    assert any("_transformer_encoder_layer_fwd" in str(row.op) for row in rows)


def ops_of(run: recoup.Run, module: str) -> set[str]:
    named = run.attribution()
    assert named is not None
    return {moment.name for moment in named.timeline() if moment.module == module}


def test_a_backward_op_is_attributed_to_the_module_of_its_forward_op() -> None:
    with recoup.budget("64MiB", profile="timeline") as run:
        model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 8), nn.GELU())
        model(torch.randn(16, 64)).sum().backward()
    assert "aten::tanh_backward" in {name.partition(".")[0] for name in ops_of(run, "1")}
    assert "aten::gelu_backward" in {name.partition(".")[0] for name in ops_of(run, "3")}
    assert any("mm" in name for name in ops_of(run, "0"))
    assert not any("backward" in name for name in ops_of(run, "0") | ops_of(run, "2"))


def test_recomputation_by_a_checkpoint_is_attributed_to_the_module() -> None:
    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(64, 64), nn.Tanh())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]

    with recoup.budget("64MiB", profile="timeline") as run:
        Checked()(torch.randn(16, 64, requires_grad=True)).sum().backward()
    tanhs = [each for each in run.timeline() if each.name.startswith("aten::tanh")]
    names = [each.name.partition(".")[0] for each in tanhs if each.kind == "op"]
    assert names == ["aten::tanh", "aten::tanh", "aten::tanh_backward"]
    assert {each.module for each in tanhs} == {"inner.1"}


def test_ops_of_a_custom_function_are_attributed_to_its_module() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.exp() * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return gradient * x.exp() * 2

    class Layer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Twice.apply(x)  # type: ignore[no-any-return, no-untyped-call]

    with recoup.budget("64MiB", profile="timeline") as run:
        net = nn.Sequential(nn.Linear(8, 8), Layer())
        net(torch.randn(4, 8)).sum().backward()
    exps = [each.module for each in run.timeline() if each.name.startswith("aten::exp")]
    assert [module for module in exps if module] == ["1", "1"]


def test_attribution_to_a_module_ends_when_its_forward_fails() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("on purpose")

    with recoup.budget("64MiB", profile="timeline") as run:
        for _ in range(3):
            with pytest.raises(ValueError, match="on purpose"):
                nn.Sequential(nn.Linear(8, 8), Fails())(torch.randn(4, 8))
        torch.randn(1000).cos()
    assert {each.module for each in run.timeline() if "cos" in each.name} == {""}


def test_several_models_have_different_names() -> None:
    class Judge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main = nn.Linear(64, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.main(x)  # type: ignore[no-any-return]

    class Maker(Judge):
        pass

    with recoup.budget("64MiB", profile="modules") as run:
        one, other = Judge(), Maker()
        (one(torch.randn(8, 64)) + other(torch.randn(8, 64))).sum().backward()
    assert {"Judge.main", "Maker.main"} <= {row.module for row in run.work()}


def test_a_module_that_was_first_called_alone_gets_its_full_name_later() -> None:
    with recoup.budget("64MiB", profile="modules") as run:
        model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
        model[1](torch.randn(8, 64))
        model(torch.randn(8, 64)).sum().backward()
        named = {row.name for row in run.holders(each=True) if row.name}
    assert {"0.weight", "1.weight"} <= named


def test_modules_may_compare_by_value_fraction_parameters_or_die() -> None:
    class Odd(nn.Linear):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    with recoup.budget("64MiB", profile="modules") as run:
        for _ in range(20):
            model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
            model[1].weight = model[0].weight
            model(torch.randn(4, 16))
            Odd(16, 16)(torch.randn(4, 16))
        rows = run.work()
    assert {"0", "1", "Odd"} <= {row.module.rpartition(".")[2] for row in rows}


def test_lines_are_those_of_the_program() -> None:
    _, _, run = trained("64MiB", profile="lines")
    rows = [row for row in run.holders(each=True) if row.kind == "activations"]
    assert rows
    for row in rows:
        assert "test_attribution.py:" in str(row.line), row
    gelu = next(row for row in rows if str(row.op).startswith("aten::gelu"))
    assert str(gelu.line).endswith("(forward)")
    # A backward op has the line of its forward op.
    work = run._engine.attribution()["makers"]
    lines = recoup._C.program_lines()
    backward = next(row for row in work if row["op"].startswith("aten::gelu_backward"))
    assert lines[backward["line"]].endswith("(forward)")


def test_pinned_values_have_names() -> None:
    torch.manual_seed(0)
    model = Net()
    with recoup.budget("64MiB", profile="modules") as run:
        train(model, 1)
        rows = run.pinned()
    named = {row.name: row.module for row in rows if row.name}
    assert named["blocks.1.up.weight"] == "blocks.1.up"
    assert not any(None in dataclasses.astuple(row) for row in rows)
    assert run.pinned()[0].module


def test_report_names_modules() -> None:
    _, _, run = trained("64MiB", profile="modules")
    text = run.report()
    assert "at the peak, by kind" in text
    assert "at the peak, by module" in text
    assert "time, by module" in text
    assert "blocks.0.up" in text
    _, _, run = trained("64MiB")
    assert "by module" not in run.report()


def test_without_the_option_no_call_is_recorded_or_replaced() -> None:
    before = nn.Module.__call__
    with recoup.budget("64MiB") as run:
        assert nn.Module.__call__ is before
        Net()(torch.randn(4, 64))
    for ask in (run.holders, run.work, run.timeline):
        with pytest.raises(
            RuntimeError, match=r"recoup\.budget\(\.\.\., profile='(modules|timeline)'\)"
        ):
            ask()
    with recoup.budget("64MiB", profile="modules") as run:
        assert nn.Module.__call__ is not before
    assert nn.Module.__call__ is before
    with pytest.raises(RuntimeError, match=r"profile=.timeline"):
        run.timeline()


def test_a_timeline_agrees_with_the_statistics() -> None:
    _, _, whole = trained("64MiB")
    _, _, run = trained(whole.stats().peak_bytes // 2, profile="timeline")
    stats, moments = run.stats(), run.timeline()
    kinds = Counter(moment.kind for moment in moments)
    assert kinds["op"] == stats.op_count
    assert kinds["replay"] == stats.replays > 0
    assert kinds["evict"] == stats.evictions
    assert kinds["move"] <= stats.moves  # moves that sort values are not in it
    assert kinds["step"] == 3
    assert sum(each.size_bytes for each in moments if each.kind == "evict") == stats.evicted_bytes
    assert max(each.charged_bytes for each in moments) <= stats.peak_bytes
    drawn = json.loads(json.dumps(chrome_trace(moments, stats.budget_bytes)))
    assert {event["ph"] for event in drawn["traceEvents"]} == {"M", "X", "i", "C"}


def test_the_last_step_is_complete() -> None:
    _, _, run = trained("64MiB", profile="timeline")
    named = run.attribution()
    assert named is not None
    step = named.step
    assert step is not None
    assert (step["number"], step["cut"]) == (2, False)
    most = max(charged for _, charged in step["charged"])
    assert most <= run.stats().peak_bytes
    # Between ops, the charged bytes are those of resident values.
    at = step["end_ns"]
    resident = sum(size for begin, end, size, *_ in step["spans"] if begin <= at <= end)
    assert 0 <= resident - step["charged"][-1][1] <= most // 4


def test_attribution_to_a_failed_optimizer_ends_with_the_next_step() -> None:
    class Fails(torch.optim.SGD):
        broken = True

        def step(self, closure: Any = None) -> Any:
            if self.broken:
                raise ValueError("on purpose")
            return super().step(closure)

    with recoup.budget("64MiB", profile="timeline") as run:
        model = nn.Linear(16, 16)
        optimizer = Fails(model.parameters(), lr=0.1)
        model(torch.randn(4, 16)).sum().backward()
        with pytest.raises(ValueError, match="on purpose"):
            optimizer.step()
        optimizer.broken = False
        optimizer.step()
        torch.randn(1000).cos()
    assert {each.module for each in run.timeline() if "cos" in each.name} == {""}


def test_suspended_and_finished_runs_have_holders(tmp_path: Path) -> None:
    torch.manual_seed(0)
    kept = []
    with pytest.raises(recoup.OutOfBudgetError) as caught:
        with recoup.budget("1MiB", profile="modules") as run:
            x = torch.randn(1 << 14)
            for _ in range(32):
                kept.append(x * 2)
    assert caught.value.run is run
    assert sum(row.bytes for row in run.holders()) == run.stats().peak_bytes
    run.resume("64MiB")
    assert sum(row.bytes for row in run.holders()) == run.stats().peak_bytes
    assert nn.Module.__call__.__qualname__.startswith("Module.")


def test_a_value_made_without_inputs_outside_of_modules_is_an_input() -> None:
    with recoup.budget("64MiB", profile="modules") as run:
        held = [torch.randn(1000), torch.arange(1000.0), torch.ones(1000), torch.zeros(999)]
        rows = run.holders(each=True)
    assert len(held) == 4
    # At the peak, the last op had not ended.
    assert {row.kind for row in rows} == {"inputs", "workspace"}
    assert sum(row.values for row in rows if row.kind == "inputs") == 3


def test_a_chrome_trace_is_the_timeline(tmp_path: Path) -> None:
    _, _, run = trained("64MiB", profile="timeline")
    file = tmp_path / "run.json"
    run.export_chrome_trace(file)
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    ops = [each for each in events if each["ph"] == "X" and each["tid"] == 1]
    assert len(ops) == run.stats().op_count
    with pytest.raises(FileNotFoundError):
        run.export_chrome_trace(tmp_path / "absent" / "run.json")
    _, _, bare = trained("64MiB", profile="modules")
    with pytest.raises(RuntimeError, match="did not record a timeline"):
        bare.export_chrome_trace(file)
