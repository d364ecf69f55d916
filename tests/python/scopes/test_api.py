"""The public Python API: the package, scopes, the decorator and queries."""

import ast
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import recoup
from command import cli
from conftest import bits_equal, halves
from recoup.bench.flat_options import split

# ---- the package ----


def python(script: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return result.stdout


def test_the_command_line_loads_no_module_until_a_name_is_used(tmp_path: Path) -> None:
    loaded = "{'torch', 'recoup._C', 'recoup.scope'} & {*sys.modules}"
    script = tmp_path / "recoup"  # the name of the command line's script
    script.write_text(f"""
import sys, recoup
recoup.__version__, recoup.cmake_prefix_path, recoup.policies(), dir(recoup)
assert not hasattr(recoup, "nothing") and not hasattr(recoup, "__wrapped__")
assert not {loaded}
recoup.budget
assert {loaded} == {{'torch', 'recoup._C', 'recoup.scope'}}
from recoup import *
assert budget is recoup.budget and Trace is recoup.Trace
""")
    subprocess.run([sys.executable, script], check=True)


LATER = """
import sys, recoup
before = {*sys.modules}
for name, home in recoup._HOMES.items():
    if not home.startswith("offline"):
        getattr(recoup, name)
print({*sys.modules} - before)
"""


def test_importing_recoup_in_a_program_loads_all_modules(tmp_path: Path) -> None:
    assert python(LATER) == "set()\n"
    (tmp_path / "script.py").write_text(LATER)
    result = cli("run", "--budget", "1MiB", "--quiet", "script.py", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "set()\n"), result.stderr


@pytest.mark.parametrize(
    "first",
    [
        "from recoup import _C",
        "import recoup.scope",
        "from recoup.offline.traces import Trace",
        "from recoup import OutOfBudgetError, Run",
        "import recoup; recoup.stats.STATS_GROUPS",
    ],
)
def test_any_module_can_be_loaded_first(first: str) -> None:
    script = f"""
{first}
import torch, recoup
try:
    with recoup.budget("1MiB"):
        torch.ones(2**20)
except recoup.OutOfBudgetError as error:
    print(type(error).__module__)
"""
    assert python(script) == "recoup.errors\n"


def test_type_checkers_see_the_lazily_loaded_names() -> None:
    tree = ast.parse(Path(recoup.__file__).read_bytes())
    checked = next(
        node for node in tree.body if isinstance(node, ast.If) and "TYPE" in ast.unparse(node.test)
    )
    seen = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen.pop("_C") == "recoup" and seen.pop("layout") == "recoup.offline"
    assert seen == {name: f"recoup.{home}" for name, home in recoup._HOMES.items()}
    assert {*recoup.__all__} == {*seen, "cmake_prefix_path"}
    assert recoup.__version__ == recoup._C.__version__


def test_import_loads_no_offline_tools() -> None:
    script = (
        "import sys, recoup\n"
        "print({m.split('.')[1] for m in sys.modules if m.startswith('recoup.')}"
        " & {'offline', 'bench', 'commands', 'tables'} | {'rich'} & {*sys.modules})"
    )
    assert python(script) == "set()\n"


TRAIN = """
import atexit, sys, torch

def loaded():
    modules = [name for name in sys.modules if name.startswith("recoup.offline")]
    return modules + [line for line in open("/proc/self/maps") if "offline" in line]

def train():
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.ones(256, 64)).sum().backward()
        optimizer.step()
"""


def test_a_run_in_a_budget_loads_no_offline_tools(tmp_path: Path) -> None:
    runs = f"""
import recoup
for policy in recoup.policies():
    options = {{"trace": {str(tmp_path / "t.rtrace")!r}, "profile": "modules"}}
    with recoup.budget("900KiB", policy=policy.name, **options) as run:
        train()
    print(run.stats().evictions > 0)
    run.report()
print(loaded())
recoup.layout.planners()
print("librecoup_offline" in str(loaded()))
"""
    assert python(TRAIN + runs) == "True\n" * len(recoup.policies()) + "[]\nTrue\n"
    at_exit = "atexit.register(lambda: print(loaded()))\n"
    (tmp_path / "script.py").write_text(f"{TRAIN}train()\n{at_exit}")
    result = cli("run", "--budget", "900KiB", "--report", "run.html", "script.py", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "[]\n"), result.stderr


def test_offline_names_are_loaded_on_access() -> None:
    names = {*recoup.__all__, "layout"}
    assert names <= set(dir(recoup))
    assert all(hasattr(recoup, name) for name in names)
    assert recoup.layout.plan([]).size_bytes == 0
    moment = recoup.Moment("op", "aten::add", 0, 1, 2)
    assert pickle.loads(pickle.dumps(moment)) == moment
    with pytest.raises(AttributeError, match="module 'recoup' has no attribute 'nothing'"):
        recoup.nothing  # noqa: B018


# ---- scope ----


def test_scope_is_active_only_inside_the_with() -> None:
    assert not recoup._C.active()
    with recoup.budget("64MiB") as run:
        assert recoup._C.active()
        assert isinstance(run, recoup.Run)
    assert not recoup._C.active()


def test_options_are_checked_before_the_scope() -> None:
    with pytest.raises(ValueError, match=r"policy .* is not one of .*lru"):
        recoup.budget("64MiB", policy="mru")


def test_a_scope_refuses_the_options_of_simulations() -> None:
    with pytest.raises(TypeError, match=r"got SimulationOptions: .* to recoup\.budget"):
        recoup.budget("64MiB", options=recoup.SimulationOptions(policy="lru"))


def test_one_budget_object_serves_several_runs() -> None:
    scope = recoup.budget("64MiB")
    with scope as first:
        halves()
    with scope as second:
        pass
    assert first is not second
    assert second.stats().op_count < max(first.stats().op_count, 1)


def test_decorator_starts_a_run_at_every_call() -> None:
    @recoup.budget("64MiB")
    def work(a: int, *, b: int = 1) -> tuple[bool, int]:
        """Works."""
        return recoup._C.active(), a + b

    assert (work.__name__, work.__doc__) == ("work", "Works.")
    assert work(1) == (True, 2)
    assert work(1, b=2) == (True, 3)
    assert not recoup._C.active()


def test_decorator_refuses_generators_and_coroutines() -> None:
    def generator() -> Any:
        yield 1

    async def coroutine() -> None: ...

    async def async_generator() -> Any:
        yield 1

    for function in (generator, coroutine, async_generator):
        with pytest.raises(TypeError, match=r"with recoup\.budget"):
            recoup.budget("64MiB")(function)


def test_policies_lists_the_policies_that_budget_accepts() -> None:
    names = [policy.name for policy in recoup.policies()]
    assert "dtr-eq" in names
    assert len(set(names)) == len(names)
    for name in names:
        with recoup.budget("64MiB", policy=name):
            assert halves().sum().item() == 4095 * 4096 / 4
    assert all(p.summary and "\n" not in p.summary for p in recoup.policies())


@pytest.mark.parametrize(
    "options",
    [
        {"check_replays": True},
        {"small_filter": False, "sampling": False, "seed": 0},
        {"usefulness": False, "replay_order": "recursive", "max_replay_ratio": 0},
        {"block_size": "32MiB", "move_ns_per_byte": 1000.0},
        {"policy": "dtr-eq", "kinetic": True},
        {"evict_after_op": True, "cost_model": "bytes"},
    ],
)
def test_every_option_is_accepted(options: dict[str, Any]) -> None:
    want = halves().sin()
    with recoup.budget("64MiB", **split(options)):
        got = halves().sin()
    assert bits_equal(got, want)


# ---- queries ----


def test_evict_and_materialize() -> None:
    want = halves()
    with recoup.budget("64MiB") as run:
        value = halves()
        assert recoup.is_resident(value)
        assert recoup.evict(value)
        assert not recoup.is_resident(value)
        recoup.materialize(value)
        assert recoup.is_resident(value)
        assert bits_equal(value, want)
        assert run.stats().evictions >= 1
        assert recoup.evict(value)
    assert recoup.is_resident(value)
    assert bits_equal(value, want)


def test_a_pinned_tensor_is_not_evicted() -> None:
    with recoup.budget("64MiB"):
        value = halves()
        recoup.evict(value)
        with recoup.pin(value) as same:
            assert same is value
            assert recoup.is_resident(value)
            assert not recoup.evict(value)
        assert recoup.evict(value)


def test_outside_a_scope_tensors_are_unmanaged() -> None:
    value = halves()
    assert not recoup.evict(value)
    assert recoup.is_resident(value)
    recoup.materialize(value)
    with recoup.pin(value):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_the_child_of_a_fork_continues_in_the_scope() -> None:
    want = halves().tolist()
    with recoup.budget("64MiB") as run:
        value = halves()
        assert recoup.evict(value)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                same = value.tolist() == want and value.add_(1).sum().item() == sum(want) + 4096
                run.check()
                status = 0 if same and recoup._C.active() else 1
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        # The child changed its own copy only.
        assert not recoup.is_resident(value)
        assert value.tolist() == want


def test_higher_order_ops_run() -> None:
    cond = torch.ops.higher_order.cond
    value = torch.ones(4, requires_grad=True)

    def run() -> torch.Tensor:
        out = cond(value.sum() > 0, lambda x: (x.sin(),), lambda x: (x.cos(),), (value,))[0]
        return torch.autograd.grad(out.sum(), value)[0]

    want = run()
    with recoup.budget("64MiB"):
        got = run()
    assert bits_equal(got, want)
