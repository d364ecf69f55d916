"""The scripts of bench/ find the modules that they import, and make valid settings."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import recoup
from recoup.offline import _C

SCRIPTS = sorted((Path(__file__).parents[3] / "bench").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_prints_its_help(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # conftest.py's, which has these modules
    done = subprocess.run(
        [sys.executable, script, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_comparison_of_policies_simulates_each_of_its_variants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = SCRIPTS[0].with_name("traces.py")
    monkeypatch.syspath_prepend(path.parent)
    spec = importlib.util.spec_from_file_location("bench_traces", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    builder = _C.TraceBuilder()
    builder.add_name("make")
    builder.add_kernel([1 << 20])
    builder.add_op(0, 0, 1, True, [], [1 << 20])
    trace = recoup.Trace(builder.build())
    for variant in script.VARIANTS:
        found = script.simulate(trace, 1 << 20, 100, variant)
        assert found is not None and found["time_ratio"] == 1, variant
