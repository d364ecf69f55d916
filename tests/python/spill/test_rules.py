"""Rules by module: what is not evicted, what is not spilled, in live runs and in simulations."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import recoup
from command import cli, refused

STEPS = 3
WIDTH = 128


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(500, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(6))
        self.head = nn.Linear(WIDTH, 500)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens)
        for block in self.h:
            x = block(x)
        logits: torch.Tensor = self.head(x)
        return logits


def train(steps: int = STEPS) -> list[str]:
    """Losses and parameters, to the bit."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    chance = torch.Generator().manual_seed(1)
    left = []
    for _ in range(steps):
        tokens = torch.randint(0, 500, (16, 32), generator=chance)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        left.append(loss.item().hex())
    return left + [parameter.detach().numpy().tobytes().hex() for parameter in model.parameters()]


@pytest.fixture(scope="module")
def plain() -> list[str]:
    train()  # plain PyTorch's first parallel call of a math function can differ
    return train()


@pytest.fixture(scope="module")
def peak() -> int:
    with recoup.budget("1GiB") as run:
        train()
    return run.stats().peak_bytes


def evicted(run: recoup.Run) -> Counter[str]:
    """Number of evictions by module."""
    return Counter({row.module: row.evictions for row in run.work() if row.evictions})


def spilled(run: recoup.Run) -> set[str]:
    """The modules of the values that were spilled."""
    return {moment.module for moment in run.timeline() if moment.kind == "spill"}


def within(name: str, *modules: str) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


@pytest.mark.parametrize("policy", ["recoup", "planned", "lru"])
def test_kept_modules_are_not_evicted(plain: list[str], peak: int, policy: str) -> None:
    def run_with(rules: recoup.Rules | None) -> recoup.Run:
        with recoup.budget(peak * 7 // 10, rules=rules, profile="modules", policy=policy) as run:
            assert train() == plain
        assert run.stats().peak_bytes <= peak * 7 // 10
        return run

    free = evicted(run_with(None))
    assert any(within(name, "h.0", "h.2") for name in free)
    kept = evicted(run_with(recoup.Rules(keep=["h.[02]"])))
    assert kept and not any(within(name, "h.0", "h.2") for name in kept)


def test_reports_name_what_a_rule_keeps(peak: int) -> None:
    rules = recoup.Rules(keep=["wte"])
    with recoup.budget(peak, rules=rules, spill=peak) as run:
        model = Net()
        model(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
        rows = [row for row in run.pinned() if row.by == "a rule"]
        assert not recoup.evict(model.wte.weight)
        assert recoup.evict(model.head.weight)
        model.zero_grad()
    # The parameter and its gradient, which have names after a step of an optimizer only.
    assert {row.module for row in rows} <= {"", "wte"}
    assert sum(row.bytes >= 500 * WIDTH * 4 for row in rows) == 2


def test_only_some_modules_are_spilled(plain: list[str], peak: int) -> None:
    budget = peak * 35 // 100

    def run_with(rules: recoup.Rules | None) -> recoup.Run:
        with recoup.budget(
            budget, rules=rules, spill=peak, profile="timeline", policy="recoup"
        ) as run:
            assert train() == plain
        assert run.stats().peak_bytes <= budget and run.stats().spills > 0
        return run

    # Parameters belong to modules by their names, which only rules look at as early.
    free = spilled(run_with(recoup.Rules(spill_only=["Net"])))
    assert any(within(name, "h.4", "h.5") for name in free)
    some = spilled(run_with(recoup.Rules(spill_only=["h.[0-3]"])))
    assert some <= {"", "AdamW", "Net"} | {name for name in some if name[:3] in REST}


REST = ("h.0", "h.1", "h.2", "h.3")


@pytest.mark.parametrize("rules", [{"keep": ["h.[0-1]"]}, {"keep": ["wte", "h.3.up"]}])
def test_a_simulation_makes_the_decisions_of_the_live_run(
    peak: int, tmp_path: Path, rules: dict[str, Any]
) -> None:
    options = recoup.Options(cost_model="bytes", planning="wait")
    path = tmp_path / "run.rtrace"
    made = recoup.Rules(**rules)
    with recoup.budget(peak, rules=made, trace=path, options=options):
        train()
    budget = peak * 8 // 10
    with recoup.budget(budget, rules=made, profile="decisions", options=options) as run:
        train()
    trace = recoup.Trace.read(path)
    simulated = trace.simulate(
        budget, recoup.SimulationOptions(max_time_ratio=0, **vars(options)), decisions=True
    )
    assert simulated.status == "ok" and run.decisions()
    assert simulated.decisions == run.decisions()
    with recoup.budget(peak, trace=tmp_path / "free.rtrace", options=options):
        train()
    free = recoup.Trace.read(tmp_path / "free.rtrace")
    assert (
        free.simulate(budget, recoup.SimulationOptions(**vars(options)), decisions=True).decisions
        != run.decisions()
    )


def test_a_scope_without_rules_forgets_those_of_another(plain: list[str], peak: int) -> None:
    budget = peak * 7 // 10
    with recoup.budget(budget, rules=recoup.Rules(keep=["h.[0-1]"])) as run:
        assert train() == plain
    assert not any(within(name, "h.0", "h.1") for name in evicted(run))
    with recoup.budget(budget, profile="modules") as run:
        assert train() == plain
    assert any(within(name, "h.0", "h.1") for name in evicted(run))


class Remaking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = nn.Linear(8, 8)(x)
        return y


def test_modules_that_are_made_anew_add_no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[int] = []
    applied: list[int] = []
    with recoup.budget("64MiB", rules=recoup.Rules(keep=["Remaking"])) as run:
        rules = run._rules
        assert rules is not None
        engine = SimpleNamespace(add_rule=lambda number, rule: added.append(number))
        monkeypatch.setattr(rules, "_engine", engine)
        monkeypatch.setattr("recoup._C.set_rule", lambda tensor, rule: applied.append(rule))
        model = Remaking()
        for _ in range(5):
            model(torch.ones(1, 8))
    # The outer module and the inner one; the parameters of five inner ones.
    assert len(added) == len(set(added)) == 2
    assert len(applied) == 5 * 2


def test_rules_that_leave_too_little(peak: int) -> None:
    with (
        pytest.raises(recoup.OutOfBudgetError, match="the rules of this run keep 1"),
        recoup.budget(peak // 2, rules=recoup.Rules(keep=["Net"])),
    ):
        train()


def test_a_name_that_no_module_has_gives_a_warning() -> None:
    with (
        pytest.warns(recoup.RecoupWarning, match=r"named 'h.O'; did you mean h\.[0-5]\?$"),
        recoup.budget("1GiB", rules=recoup.Rules(keep=["h.O", "h.1", "Net.h.2"])),
    ):
        train(1)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: recoup.Rules(keep="wte"), TypeError, "keep must be a list of names"),
        (lambda: recoup.Rules(keep=[1]), TypeError, "keep must be a list of names"),
        (lambda: recoup.Rules(spill_only=[""]), ValueError, "spill_only has an empty name"),
        (lambda: recoup.Rules(kept=["a"]), TypeError, "did you mean keep"),
        (
            lambda: recoup.budget("1MiB", rules={"keep": ["a"]}),
            TypeError,
            r"rules must be a recoup\.Rules or None; got dict",
        ),
        (
            lambda: recoup.budget("1MiB", rules=recoup.Rules(spill_only=["a"])),
            ValueError,
            r"rules\.spill_only needs a spill tier: give spill=SIZE",
        ),
    ],
)
def test_wrong_rules(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


PROGRAM = """
import torch
torch.manual_seed(0)
layers = [each for _ in range(6) for each in (torch.nn.Linear(128, 128), torch.nn.Tanh())]
net = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(net.parameters())
for _ in range(5):
    loss = net(torch.randn(512, 128)).square().mean()
    loss.backward()
    print(loss.item().hex())
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_commands_take_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    want = subprocess.run(
        [sys.executable, "train.py"], capture_output=True, text=True, check=True
    ).stdout
    flags = ["--budget", "2900KiB", "--keep", "0", "--keep", "[12]"]
    ran = cli("run", *flags, "--report", "r.json", "train.py")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == want
    report = json.loads(Path("r.json").read_text())
    evictions = {row["module"]: row["evictions"] for row in report["modules"]}
    assert sum(evictions.values()) > 0
    assert all(evictions.get(name, 0) == 0 for name in ("0", "1", "2"))
    found = cli("suggest", "--keep", "0", "--keep", "[12]", "--json", "s.json", "train.py")
    assert found.returncode == 0, found.stderr
    assert " --keep 0 --keep '[12]' train.py" in found.stdout
    free = cli("suggest", "--json", "f.json", "train.py")
    assert free.returncode == 0, free.stderr
    least, least_free = (
        json.loads(Path(name).read_text())["least"]["budget_bytes"] for name in ("s.json", "f.json")
    )
    # The results of three of twelve modules stay.
    assert least > least_free
    for command in ("run --budget 2MiB", "suggest"):
        said = refused(capsys, *command.split(), "--spill-only", "0", "train.py")
        assert "--spill-only needs a spill tier: add --spill SIZE" in said
    assert "must be the name of a module" in refused(
        capsys, "run", "--budget", "2MiB", "--keep", "", "train.py"
    )
