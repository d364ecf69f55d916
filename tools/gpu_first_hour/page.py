"""The results as one self-contained HTML page."""

from collections.abc import Iterable
from html import escape
from typing import Any

import machine
import plan
import results
from results import Outcome, Outcomes

_COLOURS = {
    results.OK: "#1a7f37",
    results.FAILED: "#cf222e",
    results.TIMEOUT: "#9a6700",
    results.RUNNING: "#0969da",
}
_WRONG = (results.FAILED, results.TIMEOUT)
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 1rem }
td, th { border: 1px solid #d0d7de; padding: .2rem .6rem; text-align: right }
td:first-child, th:first-child { text-align: left }
pre { background: #f6f8fa; padding: .6rem; overflow-x: auto; font-size: 12px }
h2 { margin-top: 2rem } .quiet { color: #57606a }
"""


def render(found: Outcomes) -> str:
    tables: dict[str, list[plan.Check]] = {}
    for check in plan.CHECKS:
        if check.name in found.outcomes:
            tables.setdefault(check.table or check.name, []).append(check)
    sections = [_section(title, checks, found) for title, checks in tables.items()]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>First hour on a GPU</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>First hour on a GPU</h1>\n{_notice(found)}"
        f"{_table(['setting', 'value'], found.settings.items())}\n"
        f"{_overview(found)}\n{''.join(sections)}</body></html>\n"
    )


def _notice(found: Outcomes) -> str:
    notices = [machine.remark(found.settings["torch"])]
    if found.settings["rehearsal"]:
        notices.append("A rehearsal: sizes are tiny, and no figure says anything about a GPU")
    return "".join(f"<p><strong>{escape(each)}.</strong></p>\n" for each in notices if each)


def _overview(found: Outcomes) -> str:
    rows = [
        (check.part, check.name, *_brief(found.outcomes.get(check.name))) for check in plan.CHECKS
    ]
    cells = [
        (f"{part}", name, _coloured(status), seconds, escape(reason))
        for part, name, status, seconds, reason in rows
    ]
    return "<h2>Checks</h2>\n" + _raw_table(["part", "check", "result", "s", "why"], cells)


def _brief(outcome: Outcome | None) -> tuple[str, str, str]:
    if outcome is None:
        return "not run yet", "", ""
    return outcome.status, f"{outcome.seconds:.0f}", outcome.reason[:200]


def _section(title: str, checks: list[plan.Check], found: Outcomes) -> str:
    """One table with the rows of all these checks, and the errors of each."""
    outcomes = [found.outcomes[check.name] for check in checks]
    states = ", ".join(_coloured(state) for state in dict.fromkeys(o.status for o in outcomes))
    notes = "".join(map(_note, checks, outcomes))
    rows = [row for outcome in outcomes for row in outcome.rows]
    return (
        f"<h2>{escape(title)}: {states}</h2>\n"
        f'<p class="quiet">{escape(checks[0].about)}</p>{_rows(rows)}{notes}\n'
    )


def _note(check: plan.Check, outcome: Outcome) -> str:
    """Why a check was skipped or failed, with the end of its output."""
    if not outcome.reason:
        return ""
    output = f"<pre>{escape(outcome.output)}</pre>" if outcome.status in _WRONG else ""
    return f"<p>{escape(check.name)}: {escape(outcome.reason)}</p>{output}"


def _rows(rows: list[dict[str, Any]]) -> str:
    """A table with a column for each figure that any row has."""
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return _table(
        ["" if name == "row" else name.replace("_", " ") for name in columns],
        ([row.get(name, "") for name in columns] for row in rows),
    )


def _table(head: list[str], rows: Iterable[Iterable[Any]]) -> str:
    return _raw_table(head, ([escape(_text(cell)) for cell in row] for row in rows))


def _raw_table(head: list[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose cells are HTML."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>\n{body}</table>\n"


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        return (
            f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        )
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _coloured(status: str) -> str:
    return f'<span style="color: {_COLOURS.get(status, "#57606a")}">{escape(status)}</span>'
