"""recoup.page refuses reports of another shape, and names the wrong part."""

import copy
from typing import Any

import pytest

from page_reports import gpt2_report, plain_report
from recoup import page

WRONG: list[tuple[str, Any, str]] = [
    ("title", 5, "report['title'] must be str; got int"),
    ("command", "train.py", "report['command'] must be a sequence; got str"),
    ("command", [b"x"], "report['command'][0] must be str; got bytes"),
    ("wall_ns", -1, "report['wall_ns'] must be 0 or more; got -1"),
    ("wall_ns", 1.5, "report['wall_ns'] must be a whole number; got float"),
    ("wall_ns", True, "report['wall_ns'] must be a whole number; got bool"),
    ("versions", {1: "x"}, "report['versions'] must have names as keys; got 1"),
    ("stats", {"a": 1}, "report['stats']['a'] must be a mapping; got int"),
    ("peak", {"bytes": 1, "non_tensor_bytes": 0}, "report['peak'] must have 'rows'"),
    ("peak.rows.0.kind", "gas", "report['peak']['rows'][0]['kind'] must be one of parameters, "),
    ("suggestions.0.fraction", float("nan"), "['fraction'] must be finite; got nan"),
    ("suggestions.0.fraction", "x", "['fraction'] must be a number; got str"),
    ("step.end_ns", 0, "report['step'] must not end before it begins"),
    ("step.groups.0.kind", "", "report['step']['groups'][0]['kind'] must be one of "),
    ("step.spans", [[1, 2, 3]], "['spans'] must be rows of begin_ns, end_ns, bytes, group"),
    ("step.spans", [[1, 2, 3, 0], [1]], "['spans'] must be rows of begin_ns, end_ns, bytes, group"),
    ("step.spans", [[1, 2, 3.5, 0]], "['spans'] must be rows of"),
    ("step.spans", [[1, 2, "3", 0]], "['spans'] must be rows of"),
    ("step.spans", [[1, 2, 1 << 64, 0]], "all whole numbers of at most 63 bits"),
    ("step.spans", [[2, 1, 3, 0]], "['spans'] must not end before they begin"),
    ("step.spans", [[1, 2, -3, 0]], "all 0 or more"),
    ("step.spans", [[1, 2, 3, 9999]], "by its index; got 9999"),
    ("step.spans", [[1, 2, 3, -1]], "by its index; got -1"),
    ("step.charged", [[1, -2]], "['charged'] must be rows of t_ns, bytes, all 0 or more"),
    ("step.budgets", [[1, 2, 3]], "['budgets'] must be rows of t_ns, bytes"),
    ("step.cut", 0, "report['step']['cut'] must be bool; got int"),
    ("failures", [{}], "report['failures'][0] must have 'where', 'type', 'message', 'op', "),
    ("pinned.0.kind", "gas", "report['pinned'][0]['kind'] must be one of parameters, "),
    ("step.charged", [5], "['charged'] must be rows of t_ns, bytes"),
    ("step.events", [["op", 1]], "['events'] must be rows of kind, t_ns, "),
    ("step.events", [["party", 1, 1, 1, "", 0]], "must have a kind of op, replay, evict, "),
    ("step.events", [["op", 1, 1, 1, 5, 0]], "and a name; got"),
    ("step.events", [["op", 1, 1, 1, "", -2]], "by its index; got -2"),
    ("step.events", [["op", 1, -1, 1, "", 0]], "all 0 or more"),
    ("step.events", [[["op"], 1, 1, 1, "", 0]], "must have a kind of op, replay, evict, "),
]


@pytest.mark.parametrize(("where", "value", "said"), WRONG)
def test_another_shape_is_refused_and_named(where: str, value: Any, said: str) -> None:
    report = copy.deepcopy(gpt2_report())
    at: Any = report
    *path, last = where.split(".")
    for part in path:
        at = at[int(part) if part.isdecimal() else part]
    at[last] = value
    for render in (page.render, page.render_fragment):
        with pytest.raises((TypeError, ValueError)) as raised:
            render(report)
        assert said in str(raised.value)


def test_a_missing_part_is_named() -> None:
    for key in plain_report():
        report = plain_report()
        del report[key]
        with pytest.raises(ValueError, match=f"^report must have '{key}'$"):
            page.render(report)
    with pytest.raises(TypeError, match="report must be a mapping; got list"):
        page.render([])  # type: ignore[arg-type]


def test_further_keys_are_ignored() -> None:
    report = gpt2_report()
    want = page.render(report)
    report["new"] = report["step"]["new"] = report["peak"]["new"] = object()
    assert page.render(report) == want
