"""Names of the core and the bench that the command line shows before PyTorch is loaded."""

import runpy
from pathlib import Path

import recoup
from recoup import _C, known_names
from recoup.offline import layout

TOOL = Path(__file__).parents[3] / "tools" / "known_names.py"


def test_the_file_is_up_to_date() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["FILE"].read_text(encoding="utf-8") == tool["text"](), f"run {TOOL}"


def test_rows_have_the_expected_fields() -> None:
    rows = {row[0]: row for row in _C.policies()}
    for policy in recoup.policies(simulated=True):
        name, summary, small, sampling, schedule, _, kinetic, foresees = rows[policy.name]
        assert policy == recoup.Policy(
            name=name,
            summary=summary,
            small_filter=small,
            sampling=sampling,
            schedule=schedule,
            kinetic=kinetic,
            foresees=foresees,
        )
    live = [name for name, row in rows.items() if not row[5]]
    assert known_names.policy_names() == live
    assert known_names.layout_planners() == {row.name: row.places for row in layout.planners()}
    assert known_names.names("dtr_policies") == _C.dtr_policies()
