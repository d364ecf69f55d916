"""Policies that only a simulation can have, because they know the future."""

from pathlib import Path
from typing import Any

import pytest

import recoup
from command import cli_here, refused
from recoup.offline import _C
from shared_data import SHARED

# As in the DTR authors' simulator: bytes only, and every candidate is scored.
BYTES_ONLY: dict[str, Any] = {
    "layout": False,
    "small_filter": False,
    "sampling": False,
    "small_result_bytes": 0,
    "max_replay_ratio": 0,
}


def forked() -> recoup.Trace:
    """x -> a (expensive), x -> b (cheap), x -> c; then c, a and b are read, in this order."""
    builder = _C.TraceBuilder()
    builder.add_name("op")
    builder.add_kernel([64])
    builder.add_kernel([])
    builder.add_event("external", 0, 64)
    for cost in (40, 10, 10):
        builder.add_op(0, 0, cost, True, [(0, True, False, False)], [64])
    for storage in (3, 1, 2):
        builder.add_op(0, 1, 100, True, [(storage, True, False, False)], [])
        builder.add_event("die", storage, 0)
    return recoup.Trace(builder.build())


def test_oracle_evicts_the_value_used_last() -> None:
    # In addition to x, two of the three fit. When c is made, lru evicts a, which costs 40 and is
    # used after 110 ns; the oracle evicts b, which costs 10 and is used after 210 ns.
    trace = forked()
    plain = trace.simulate(3 * 64, recoup.SimulationOptions(policy="lru", **BYTES_ONLY))
    oracle = trace.simulate(3 * 64, recoup.SimulationOptions(policy="oracle", **BYTES_ONLY))
    assert (plain.replay_cost_ns, oracle.replay_cost_ns) == (40, 10)


def test_exponents_of_the_oracle() -> None:
    trace = forked()

    def cost(*oracle: float) -> int:
        return trace.simulate(
            192, recoup.SimulationOptions(policy="oracle", oracle=oracle, **BYTES_ONLY)
        ).replay_cost_ns  # type: ignore[arg-type]

    assert cost(0.0, 1.0, 1.0, 1.0) == 10  # by distance alone
    assert cost(1.0, 1.0, 0.0, 1.0) == 10  # by cost alone
    with pytest.raises(ValueError, match="from 0 to 8"):
        cost(9.0, 1.0, 1.0, 1.0)


def test_unbounded_has_no_replays() -> None:
    run = forked().simulate(64, recoup.SimulationOptions(policy="unbounded", **BYTES_ONLY))
    assert (run.status, run.time_ratio, run.stats.peak_bytes) == ("ok", 1.0, 4 * 64)


@pytest.mark.parametrize("policy", ["oracle", "unbounded"])
def test_a_run_refuses_these_policies(policy: str) -> None:
    with pytest.raises(ValueError, match="is not one of planned"):
        recoup.budget("1MiB", policy=policy)
    assert policy not in [row.name for row in recoup.policies()]
    assert policy in [row.name for row in recoup.policies(simulated=True)]


def test_the_command_takes_exponents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "forked.rtrace"
    forked().write(path)
    shown = cli_here(
        capsys, "simulate", path, "--policy", "unbounded", "oracle", "--budgets", "192B",
        "--no-layout", "--oracle", "1", "1", "0.5", "2",
    )  # fmt: skip
    assert shown.returncode == 0 and "oracle" in shown.stdout, shown.stderr
    exponents = ("--oracle", "1", "1", "1", "-1")
    assert "from 0 to 8" in refused(capsys, "simulate", path, "--policy", "oracle", *exponents)


@pytest.mark.parametrize(
    ("log", "fraction", "limit"),
    [("resnet32", 0.15, 1.36), ("unet", 0.3, 1.42), ("lstm", 0.2, 1.27)],
)
def test_on_the_published_logs(log: str, fraction: float, limit: float) -> None:
    path = SHARED / "dtr-logs" / f"{log}.log.gz"
    if not path.exists():
        pytest.skip(f"the published logs are not in {SHARED}")
    trace = recoup.read_dtr_log(path)
    budget = int(trace.unbudgeted_peak_bytes() * fraction)
    oracle = trace.simulate(budget, recoup.SimulationOptions(policy="oracle", **BYTES_ONLY))
    assert oracle.status == "ok"
    assert oracle.time_ratio <= limit
    dtr = trace.simulate(budget, recoup.SimulationOptions(policy="dtr", **BYTES_ONLY))
    assert oracle.time_ratio < dtr.time_ratio
