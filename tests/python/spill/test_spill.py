"""A spill tier on a disk: the same bits in budgets below parameters, gradients and state."""

import copy
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import recoup
from command import cli, cli_here, refused
from recoup._memory.sizes import format_bytes
from recoup.bench.flat_options import split
from tier_file import file_of_the_tier

STEPS = 3
WIDTH = 256

OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-3),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, 1e-3, amsgrad=True),
    "momentum": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
    "adamw foreach": lambda parameters: torch.optim.AdamW(parameters, 1e-3, foreach=True),
    "adamw fused": lambda parameters: torch.optim.AdamW(parameters, 1e-3, fused=True),
    "lion-like": lambda parameters: torch.optim.RMSprop(parameters, 1e-3, centered=True),
}


def train(optimizer: str = "adamw") -> list[str]:
    """Losses, parameters and state, to the bit, of a net whose state is most of its memory."""
    torch.manual_seed(0)
    layers = [layer for _ in range(5) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    model = nn.Sequential(*layers)
    steps = OPTIMIZERS[optimizer](model.parameters())
    chance = torch.Generator().manual_seed(1)
    left = []
    for _ in range(STEPS):
        loss = model(torch.randn(32, WIDTH, generator=chance)).square().mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
        left.append(loss.item().hex())
    for values in (model.parameters(), *(state.values() for state in steps.state.values())):
        left += [float(value.double().sum()).hex() for value in values]
        left += [float((value * 3 + 1).double().square().sum()).hex() for value in values]
    return left


def peak_of(optimizer: str) -> int:
    with recoup.budget("1GiB") as run:
        train(optimizer)
    return run.stats().peak_bytes


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_fits_below_its_state(optimizer: str) -> None:
    plain = train(optimizer)
    peak = peak_of(optimizer)
    budget = peak // 4  # parameters, gradients and state are more than half of the peak
    with pytest.raises(recoup.OutOfBudgetError), recoup.budget(budget):
        train(optimizer)
    with recoup.budget(budget, spill="1GiB", profile="decisions") as run:
        assert train(optimizer) == plain
    stats = run.stats()
    kinds = Counter(decision.kind for decision in run.decisions())
    assert kinds["fetch"] == stats.fetches
    assert kinds["spill"] >= stats.clean_spills > 0
    assert stats.peak_bytes <= budget
    assert stats.spills + stats.clean_spills >= stats.fetches > 0
    assert 0 < stats.spill_peak_bytes <= 1 << 30
    mean = format_bytes(stats.spilled_bytes // STEPS)
    assert re.search(f"spilled a step, mean +{re.escape(mean)}", run.report())
    waits = run.copy_waits()
    totals = [row.spill_ns + row.fetch_ns for row in waits]
    assert totals == sorted(totals, reverse=True)
    assert sum(row.fetch_ns for row in waits) == stats.fetch_ns
    assert sum(row.spill_ns for row in waits) == stats.spill_ns
    assert "aten::addmm" in {row.op for row in waits}
    assert "waits for copies" in run.report()


@pytest.mark.parametrize(
    "options",
    [
        {"evict_after_op": True},
        {"check_replays": True},
        {"in_place": "copy"},
        {"usefulness": False},
        {"policy": "lru"},
        {"policy": "coop"},
        {"policy": "dtr", "replay_order": "recursive"},
        {"policy": "random"},
    ],
)
def test_each_option_gives_the_same_bits(options: dict[str, Any]) -> None:
    plain = train()
    with recoup.budget(peak_of("adamw") // 3, spill="1GiB", **split(options)) as run:
        assert train() == plain
    assert run.stats().spills > 0


MEMORY = """
import gc, sys, torch, recoup
def resident():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
with recoup.budget("16MiB"):
    torch.ones(1000).sum()
gc.collect()
before = resident()
for _ in range(5):
    with recoup.budget("16MiB", spill="2GiB", spill_dir=sys.argv[1]):
        inside = resident()
    print(inside - before)
"""


def test_a_spill_tier_uses_little_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # 4 MiB of buffers, and modules that the first scope of a kind loads.
    assert max(map(int, done.stdout.split())) < 8 * 1024, done.stdout


def test_nothing_is_spilled_while_there_is_room() -> None:
    with recoup.budget("1GiB", spill="1GiB") as run:
        train()
    stats = run.stats()
    assert (stats.spills, stats.spilled_bytes, stats.spill_peak_bytes) == (0, 0, 0)


def test_an_exit_fetches_live_values() -> None:
    torch.manual_seed(0)
    plain = [torch.randn(1 << 18) for _ in range(8)]
    torch.manual_seed(0)
    with recoup.budget("4MiB", spill="64MiB") as run:
        made = [torch.randn(1 << 18) for _ in range(8)]
        run.set_budget("32MiB")
    assert all(torch.equal(a, b) for a, b in zip(plain, made, strict=True))


def test_an_exit_that_does_not_fit_can_be_completed() -> None:
    run = recoup.budget("4MiB", spill="64MiB")
    torch.manual_seed(0)
    made = []
    with (
        pytest.raises(recoup.OutOfBudgetError, match="alive at the end of the scope"),
        run as scope,
    ):
        made += [torch.randn(1 << 18) for _ in range(8)]
    scope.resume("32MiB")
    torch.manual_seed(0)
    assert all(torch.equal(a, torch.randn(1 << 18)) for a in made)


def test_a_full_disk_loses_no_value(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import resource, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_spill as t, recoup\n"
        "plain, peak = t.train(), t.peak_of('adamw')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))\n"
        "with recoup.budget(peak * 19 // 20, spill='1GiB') as run:\n"
        "    assert t.train() == plain\n"
        "print(run.stats().spill_peak_bytes <= 1 << 20)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.stdout == "True\n", done.stderr


def test_the_file_has_no_name(tmp_path: Path) -> None:
    with recoup.budget(peak_of("adamw") // 3, spill="64MiB", spill_dir=tmp_path) as run:
        train()
        assert run.stats().spills > 0
        assert os.listdir(tmp_path) == []


def flip_bits(path: str) -> None:
    """Flips bits in every block, like a disk that returns wrong data without an error."""
    with open(path, "r+b", buffering=0) as file:
        for place in range(0, os.fstat(file.fileno()).st_size, 1 << 20):
            old = os.pread(file.fileno(), 64, place + 512)
            os.pwrite(file.fileno(), bytes(byte ^ 16 for byte in old), place + 512)


FORKS = """
import os, sys, torch, recoup
torch.set_num_threads(1)
with recoup.budget("8MiB", spill="64MiB") as run:
    held = [torch.full((1 << 18,), float(i)) for i in range(12)]
    for tensor in held:
        tensor.sum()  # what is changed after it was read is not recomputable
        tensor.add_(torch.ones(1))
        tensor.add_(torch.ones(1))
    for tensor in held[:5]:
        tensor.sum()
    here = [i for i, tensor in enumerate(held) if recoup.is_resident(tensor)]
    away = [i for i in range(12) if i not in here]
    child = os.fork()
    if child == 0:
        try:
            [torch.randn(1 << 18).sum() for _ in range(20)]
        except recoup.OutOfBudgetError as error:
            assert "spill tier could not be written" in str(error), error
        assert all(held[i].eq(i + 2).all() for i in here)
        try:
            held[away[0]].sum()
        except RuntimeError as error:
            assert "forked process" in str(error) or "out of budget" in str(error), error
        else:
            os._exit(3)
        os._exit(0)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 0
    assert here and away and all(held[i].eq(i + 2).all() for i in range(12))
    del tensor, held
"""


def test_a_forked_child_keeps_resident_values() -> None:
    """The child cannot read the tier, so it must not evict values that have a copy there."""
    run = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_wrong_data_from_the_disk_is_an_error(tmp_path: Path) -> None:
    with recoup.budget("8MiB", spill="64MiB", spill_dir=tmp_path):
        made = [torch.full((1 << 18,), float(i)) for i in range(12)]
        for each in made:
            each.sum()  # what is changed after it was read is not recomputable
            each.add_(torch.ones(1))
            each.add_(torch.ones(1))
        flip_bits(file_of_the_tier())
        lost = [each for each in made if not recoup.is_resident(each)]
        assert lost
        for each in lost:
            with pytest.raises(RuntimeError, match="was read back with other bits: 1048576 bytes"):
                each.sum()
        del lost, each
        kept = [each for each in made if recoup.is_resident(each)]
        assert kept and all(each.sum().item() % (1 << 18) == 0 for each in kept)
        del made


def test_recomputable_values_do_not_need_a_good_disk(tmp_path: Path) -> None:
    def program(between: Any) -> list[str]:
        torch.manual_seed(0)
        a, b = torch.randn(2, 700, 700).unbind()
        made = [a @ b]
        for _ in range(6):
            made.append(made[-1] @ b / 20)
        between()
        return [each.double().sum().item().hex() for each in made]

    plain = program(lambda: None)
    options = {"spill": "64MiB", "spill_dir": tmp_path}
    with recoup.budget("11MiB", **split(options)) as run:
        assert program(lambda: flip_bits(file_of_the_tier())) == plain
    stats = run.stats()
    assert stats.unread_copies > 0 and stats.replays >= stats.unread_copies


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"spill": "1GiB", "spill_dir": "/no/such/folder"}, FileNotFoundError, "/no/such/folder"),
        ({"spill": "1GiB", "spill_dir": "a\0b"}, ValueError, "must be the path of a directory"),
        ({"spill": 0}, ValueError, "spill 0 is not above 0"),
        ({"spill": "a lot"}, ValueError, "spill 'a lot' is not a size"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says), recoup.budget("64MiB", **split(options)):
        pass


def test_a_simulation_has_a_spill_tier(tmp_path: Path) -> None:
    path = tmp_path / "run.rtrace"
    with recoup.budget("1GiB", trace=path):
        train()
    trace = recoup.Trace.read(path)
    budget = trace.unbudgeted_peak_bytes() // 5
    assert trace.simulate(budget).status == "out of budget"
    tiered = trace.simulate(budget, recoup.SimulationOptions(spill="1GiB"), decisions=True)
    assert tiered.status == "ok" and tiered.stats.spills > 0
    kinds = Counter(decision.kind for decision in tiered.decisions)
    assert kinds["fetch"] == tiered.stats.fetches
    assert kinds["spill"] >= tiered.stats.clean_spills > 0
    assert tiered.spill_cost_ns > 0 and tiered.time_ratio > 1


def test_the_commands_accept_a_spill_tier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_spill\nprint(test_spill.train() is not None)\n"
    )
    trace, report = tmp_path / "run.rtrace", tmp_path / "report.json"
    peak = peak_of("adamw")
    sizes = ("--budget", str(peak // 4))
    run = [sys.executable, "-m", "recoup", "run"]
    spill = ("--spill", "1GiB", "--spill-dir", str(tmp_path))
    files = ("--report", str(report), "--trace", str(trace))
    done = subprocess.run([*run, *sizes, *spill, *files, script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert json.loads(report.read_text())["stats"]["tier"]["spills"] > 0
    without = subprocess.run([*run, *sizes, script], capture_output=True, text=True)
    assert without.returncode != 0 and "out of budget" in without.stderr

    simulate = ("simulate", str(trace), "--budgets", "25", "--json", str(tmp_path / "rows.json"))
    ratios = []
    for bandwidth in ("10,10", "0.5,0.5"):
        shown = cli_here(capsys, *simulate, "--spill", "1GiB", "--spill-bandwidth", bandwidth)
        assert shown.returncode == 0, shown.stderr
        (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
        ratios.append(row["time_ratio"])
    assert 1 < ratios[0] < ratios[1]
    several = ("--spill", "none", "1GiB", "8MiB", "--spill-bandwidth", "10,10", "0.5,0.5")
    shown = cli_here(capsys, *simulate, *several, "--max-time-ratio", "1000")
    assert shown.returncode == 0, shown.stderr
    assert "+ 1GiB 0.5,0.5 GB/s" in shown.stdout
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["spill"], row["spill_bandwidth"]) for row in rows] == [
        (None, None),
        *((size, speed) for size in ("1GiB", "8MiB") for speed in ([10, 10], [0.5, 0.5])),
    ]
    assert rows[0]["status"] == "out of budget"
    assert [row["time_ratio"] for row in rows[1:3]] == ratios
    slow = cli_here(capsys, *simulate, "--spill", "1GiB", "--spill-request-ns", "5e6")
    assert slow.returncode == 0, slow.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert row["time_ratio"] > ratios[1]
    quick = cli_here(capsys, *simulate, "--spill", "1GiB", "--spill-request-ns", "0")
    assert quick.returncode == 0, quick.stderr
    for wrong, says in (
        (("--spill-bandwidth", "3,1"), "--spill-bandwidth needs a spill tier"),
        (("--spill-request-ns", "3"), "--spill-request-ns needs a spill tier"),
        (
            ("--spill", "1GiB", "--spill-request-ns", "-1"),
            "--spill-request-ns must be a number from 0 to",
        ),
        (("--spill", "1GiB", "--spill-bandwidth", "0,1"), "must be READ,WRITE"),
        (("--spill", "a lot"), "--spill 'a lot' is not a size"),
    ):
        assert says in refused(capsys, *simulate, *wrong)


def test_no_value_is_fetched_at_the_end_of_the_process(tmp_path: Path) -> None:
    """At the end of a command no code can read the values."""
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, torch\n"
        "def make(i):\n"
        "    made = torch.full((1 << 18,), float(i))\n"
        "    made.sum()  # what is changed after it was read is not recomputable\n"
        "    return made.add_(torch.ones(1)).add_(torch.ones(1))\n"
        "made = [make(i) for i in range(12)]\n"
        "atexit.register(lambda: print(made[11].sum().item()))\n"
    )
    report = tmp_path / "report.json"
    run = [sys.executable, "-m", "recoup", "run", "--budget", "4MiB", "--spill", "64MiB"]
    done = subprocess.run(
        [*run, "--quiet", "--report", report, script], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3407872.0\n", "")
    stats = json.loads(report.read_text())["stats"]["tier"]
    assert stats["spills"] >= 8 and stats["fetches"] == 0


READS_AHEAD_AT_THE_END = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(
    *[layer for _ in range(6) for layer in (torch.nn.Linear(256, 256), torch.nn.Tanh())]
)
optimizer = torch.optim.Adam(net.parameters())
for _ in range(8):
    loss = net(torch.randn(512, 256)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
"""


@pytest.mark.parametrize("budget", [f"{4.0 + i / 100:.2f}MiB" for i in range(4)])
def test_a_process_may_end_while_copies_are_in_progress(tmp_path: Path, budget: str) -> None:
    (tmp_path / "script.py").write_text(READS_AHEAD_AT_THE_END)
    result = cli("run", "--budget", budget, "--spill", "64MiB", "script.py", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    replays, copies = result.stderr.splitlines()[-2:]
    assert "replays" in replays and "The spill tier held at most" in copies


def test_a_state_larger_than_the_budget_is_saved(tmp_path: Path) -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(*[nn.Linear(512, 512) for _ in range(20)])

    plain, saved = tmp_path / "plain.pt", tmp_path / "saved.pt"
    torch.save(make().state_dict(), plain)
    with recoup.budget("6MiB", spill="64MiB", spill_dir=tmp_path) as run:
        model = make()
        torch.save(model.state_dict(), saved)
        assert run._engine.pinned() == [] or run.stats().escapes == 0
        del model
    loaded = torch.load(saved)
    for name, value in torch.load(plain).items():
        assert torch.equal(value, loaded.pop(name))
    assert not loaded


def test_a_state_larger_than_the_budget_is_copied_loaded_and_evaluated(tmp_path: Path) -> None:
    def program() -> list[str]:
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(20)])
        other = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(2)
        torch.save(other.state_dict(), tmp_path / "other.pt")
        model.load_state_dict(other.state_dict())
        del other
        with torch.no_grad():
            left = [model.eval()(torch.full((4, 512), i)) for i in (0.1, 0.2)]
        state = torch.load(tmp_path / "other.pt")
        model.load_state_dict(state)
        left += [parameter.detach() * (i + 1) for i, parameter in enumerate(model.parameters())]
        return [each.double().sum().item().hex() for each in left]

    plain = program()
    with recoup.budget("6MiB", spill="256MiB", spill_dir=tmp_path) as run:  # instead of 20 MiB
        assert program() == plain
        assert run._engine.pinned() == [] or run.stats().escapes == 0
