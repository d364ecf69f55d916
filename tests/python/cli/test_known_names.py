"""Names of the core and the bench that the command line shows before PyTorch is loaded."""

import runpy
from pathlib import Path

import recoup
from recoup import known_names
from recoup.offline import _C, layout

TOOL = Path(__file__).parents[3] / "tools" / "known_names.py"


def test_the_file_is_up_to_date() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["FILE"].read_text(encoding="utf-8") == tool["text"](), f"run {TOOL}"


def test_rows_have_the_expected_fields() -> None:
    of_core = known_names.core_policies()
    assert recoup.policies(simulated=True) == [*of_core.values()]
    assert recoup.policies() == [each for each in of_core.values() if not each.simulated]
    assert known_names.policy_names() == [policy.name for policy in recoup.policies()]
    assert of_core["dtr"] == recoup.Policy(
        name="dtr",
        summary="lowest cost of value and evicted neighborhood (exact) over bytes and staleness",
        small_filter=True,
        sampling=True,
        schedule=False,
        simulated=False,
        kinetic=True,
        foresees=False,
    )
    assert {name for name, policy in of_core.items() if policy.foresees} == {"planned"}
    oracles = {"capuchin", "oracle", "tflms", "unbounded"}
    assert {name for name, policy in of_core.items() if policy.simulated} == oracles
    for policy in of_core.values():
        assert policy.schedule == policy.summary.startswith("schedule:")
        assert type(policy.name) is type(policy.summary) is str
    assert known_names.layout_planners() == {row.name: row.places for row in layout.planners()}
    assert known_names.names("dtr_policies") == _C.dtr_policies()
