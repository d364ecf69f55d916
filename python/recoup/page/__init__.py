"""A run as one self-contained HTML page: no network, no server, no fonts."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from recoup._reporting.report import format_ns
from recoup.page import shape, tables
from recoup.page.failure import failure_section
from recoup.page.holders import holders_tables, pinned_table
from recoup.page.palette import EVENTS, KINDS, VIRIDIS
from recoup.page.picture import still_picture
from recoup.page.steps import Step, read_step
from recoup.page.summary import figures, header, peak_bar
from recoup.page.texts import OUTSIDE, count_text, escape
from recoup.words import WORDS

__all__ = ["render", "render_fragment"]

_FRAGMENT_ROWS = 50
_SCRIPTS = ("texts.js", "sweep.js", "paint.js", "chart.js", "tables.js", "page.js")


def render(report: Mapping[str, Any]) -> str:
    """The page's text, to be written to a file as UTF-8. It needs no other file and no network.

    `report` has the form that docs/maintainers/report-format.md describes: sizes in bytes, times in
    nanoseconds. Names in it may be any text; none is interpreted as HTML or as a script.

    Raises ValueError or TypeError that says where, for a report of another shape.
    """
    shape.check(report)
    step = None if report["step"] is None else read_step(report["step"])
    style = _asset("tables.css") + _asset("page.css")
    script = "\n".join(map(_asset, _SCRIPTS))
    return Template(_asset("page.html")).substitute(
        policy=f"default-src 'none'; script-src '{_digest(script)}'; "
        f"style-src '{_digest(style)}'; img-src data:; base-uri 'none'; form-action 'none'",
        title=escape(report["title"]),
        style=style,
        header=header(report) + "\n" + failure_section(report),
        memory=_memory(report, step),
        tables=_tables(report),
        data=_embedded(None if step is None else _chart_data(step)),
        script=script,
    )


def render_fragment(report: Mapping[str, Any]) -> str:
    """The same report for a notebook: a still picture and the tables, without scripts.

    Its style applies to itself only. Raises as `render`.
    """
    shape.check(report)
    step = None if report["step"] is None else read_step(report["step"])
    picture = (
        f"<h3>{_step_title(report['step'])}</h3>{_step_note(report)}{still_picture(step)}"
        if step
        else ""
    )
    return (
        f'<div class="recoup-page"><style>{_asset("tables.css")}</style>\n'
        f"{figures(report)}\n{failure_section(report)}{picture}\n"
        f"<details><summary>Modules</summary>"
        f"{tables.modules_table(report, _FRAGMENT_ROWS)}</details>\n"
        f"<details><summary>At the peak</summary>{_peak(report)}</details>\n"
        "<details><summary>What cannot be evicted</summary>"
        f"{pinned_table(report['pinned'])}</details>\n"
        f"{_suggestions(report, '<details><summary>Other budgets</summary>', '</details>')}</div>"
    )


def _memory(report: Mapping[str, Any], step: Step | None) -> str:
    if step is None:
        return "<p>No step was recorded, so there is no chart.</p>"
    seen = "" if step.spans.size else "<p>No value was in memory in this step.</p>"
    return Template(_asset("chart.html")).substitute(
        step=_step_title(report["step"]), seen=_step_note(report) + seen, still=still_picture(step)
    )


def _step_title(step: Mapping[str, Any]) -> str:
    name = f" ({escape(step['name'])})" if step["name"] else ""
    took = format_ns(step["end_ns"] - step["begin_ns"])
    return f"Memory over step {count_text(step['number'])}{name}, {took}"


def _step_note(report: Mapping[str, Any]) -> str:
    """Remarks on the step."""
    notes = []
    if any(failure["rows"] is not None for failure in report["failures"]):
        notes.append("The chart ends where an allocation failed.")
    if report["step"]["cut"]:
        notes.append("The step continued; the page shows only the recorded part.")
    return f'<p class="note">{" ".join(notes)}</p>' if notes else ""


def _peak(report: Mapping[str, Any]) -> str:
    peak = report["peak"]
    return holders_tables(peak["rows"], peak["bytes"], label="Peak")


def _tables(report: Mapping[str, Any]) -> str:
    settings, versions = report["settings"], report["versions"]
    counters = "".join(
        tables.pairs_table(group, label=name) for name, group in report["stats"].items()
    )
    return (
        '<section><h2>Modules</h2><p class="quiet">A row sums a module and the modules '
        f"below it.</p>{tables.modules_table(report)}</section>\n"
        f"<section><h2>At the peak</h2>{peak_bar(report['peak'])}"
        f"{_peak(report)}</section>\n"
        "<section><h2>What cannot be evicted, and why</h2>"
        f"{pinned_table(report['pinned'])}</section>\n"
        f"{_suggestions(report, '<section><h2>Other budgets</h2>', '</section>')}\n"
        '<section><h2>Settings and versions</h2><div class="pair">'
        f"{tables.pairs_table(settings, label='setting')}"
        f"{tables.pairs_table(versions, label='version of')}</div></section>\n"
        f'<details><summary>All counters</summary><div class="pair">{counters or "<p>None.</p>"}'
        f"</div></details>\n{_words()}"
    )


def _words() -> str:
    """A table that explains the page's terms."""
    return f"<details><summary>Words</summary>{tables.pairs_table(WORDS, label='word')}</details>"


def _suggestions(report: Mapping[str, Any], before: str, after: str) -> str:
    suggestions = report["suggestions"]
    if suggestions is None:
        return ""
    return f"{before}{tables.suggestions_table(suggestions)}{after}"


def _chart_data(step: Step) -> dict[str, Any]:
    colours = {"kinds": KINDS, "modules": VIRIDIS, "events": EVENTS, "outside": OUTSIDE}
    return {**step.to_dict(), "palette": colours}


def _embedded(data: object) -> str:
    """JSON in ASCII that an HTML parser cannot read as a tag; ASCII also escapes U+2028."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The hash by which a content security policy identifies an inline style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
