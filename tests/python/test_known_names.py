"""Names that the command line shows before PyTorch is loaded: those of the core and the bench."""

import runpy
from pathlib import Path

import recoup
from recoup import _C, known_names
from recoup.offline import layout

TOOL = Path(__file__).parents[2] / "tools" / "known_names.py"


def test_the_file_is_what_the_tool_writes() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["FILE"].read_text(encoding="utf-8") == tool["text"](), f"run {TOOL}"


def test_rows_have_the_fields_that_they_are_read_with() -> None:
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
