"""The head of a page: the command, and the three main figures."""

import shlex
from collections.abc import Mapping
from typing import Any

from recoup._memory.sizes import format_bytes
from recoup._reporting.report import budget_line, format_ns, peak_parts, shared_line
from recoup._reporting.step_times import StepRatio
from recoup.page.palette import KINDS
from recoup.page.texts import NOTHING, count_text, escape, percent, ratio_text
from recoup.rows import BudgetChange
from recoup.shared import SharedBudget
from recoup.stats import ADDED_NS

_TIME = "Time relative to that of the ops alone"


def counters(report: Mapping[str, Any]) -> dict[str, int]:
    """The counters of all groups, by name."""
    return {name: count for group in report["stats"].values() for name, count in group.items()}


def header(report: Mapping[str, Any]) -> str:
    """Title, command and figures."""
    facts = [escape(report["device"])]
    facts += [f"{format_ns(report['wall_ns'])} in all"] if report["wall_ns"] else []
    command = shlex.join(report["command"])
    return (
        f"<header><h1>{escape(report['title'])}</h1>\n"
        + (f"<p><code>{escape(command)}</code></p>\n" if command else "")
        + f'<p class="quiet">{" &middot; ".join(facts)}</p></header>\n'
        + figures(report)
    )


def figures(report: Mapping[str, Any]) -> str:
    """Peak of the budget, time over that of the ops and over plain steps, and replays."""
    counts = counters(report)
    parts = [_peak_figure(report, counts), _time_figure(counts), _replay_figure(counts)]
    if (ratio := report["step_ratio"]) is not None:
        parts.append(_plain_figure(StepRatio(**ratio)))
    changes = [BudgetChange(**change) for change in report["budget_changes"]]
    shared = report["shared_budget"]
    notes = [budget_line(changes)] if changes else []
    notes += [shared_line(SharedBudget(**shared))] if shared else []
    return (
        '<dl class="figures">'
        + "".join(
            f"<div><dt>{name}</dt><dd>{escape(value)}</dd><dd>{escape(note)}</dd></div>"
            for name, value, note in parts
        )
        + "</dl>"
        + "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    )


def _peak_figure(report: Mapping[str, Any], counts: Mapping[str, int]) -> tuple[str, str, str]:
    peak = report["peak"]["bytes"]
    budget = counts.get("budget_bytes") or (report["step"] or {}).get("budget_bytes") or 0
    budget = max([budget, *(change["before_bytes"] for change in report["budget_changes"])])
    note = f"{percent(peak, budget)} of {format_bytes(budget)}" if budget else "without a budget"
    if parts := peak_parts(peak, report["peak"]["non_tensor_bytes"]):
        note = f"{parts}; {note}"
    return "Peak", format_bytes(peak), note


def _time_figure(counts: Mapping[str, int]) -> tuple[str, str, str]:
    plain = counts.get("op_ns", 0)
    if not plain:
        return _TIME, NOTHING, "no ops were timed"
    added = {name: counts.get(name, 0) for name in ADDED_NS}
    total = sum(added.values())
    note = f"ops took {format_ns(plain)}, recoup added {format_ns(total)}"
    if total:
        most = max(added, key=added.__getitem__)
        note += f", mostly for {most.removesuffix('_ns')} ({format_ns(added[most])})"
    return _TIME, ratio_text((plain + total) / plain), note


def _plain_figure(steps: StepRatio) -> tuple[str, str, str]:
    times = f"{format_ns(steps.step_ns)} against {format_ns(steps.plain_step_ns)}"
    note = f"{times}: medians, the first steps left out"
    return "Step time over plain PyTorch", ratio_text(steps.ratio), note


def _replay_figure(counts: Mapping[str, int]) -> tuple[str, str, str]:
    note = f"{count_text(counts.get('evictions', 0))} evictions"
    if evicted := counts.get("evicted_bytes", 0):
        note += f" of {format_bytes(evicted)}"
    if replay := counts.get("replay_ns", 0):
        note = f"{format_ns(replay)} in replays; {note}"
    return "Replays", count_text(counts.get("replays", 0)), note


def peak_bar(peak: Mapping[str, Any]) -> str:
    """A bar of the peak by kind, as SVG; empty if no memory was held."""
    sizes = dict.fromkeys(KINDS, 0)
    for row in peak["rows"]:
        sizes[row["kind"]] += row["bytes"]
    whole = sum(sizes.values())
    if not whole:
        return ""
    parts, keys, left = [], [], 0.0
    for kind, size in sizes.items():
        if size:
            width = 1000 * size / whole
            parts.append(
                f'<rect x="{left:.2f}" width="{width:.2f}" height="16" fill="{KINDS[kind]}">'
                f"<title>{kind}: {format_bytes(size)}</title></rect>"
            )
            keys.append(f"<li>{swatch(KINDS[kind])}{kind} {format_bytes(size)}</li>")
            left += width
    return (
        '<svg class="bar" viewBox="0 0 1000 16" preserveAspectRatio="none" role="img" '
        f'aria-label="The peak by kind">{"".join(parts)}</svg><ul class="keys">{"".join(keys)}</ul>'
    )


def swatch(colour: str) -> str:
    """A small square."""
    return (
        '<svg class="swatch" viewBox="0 0 1 1" aria-hidden="true">'
        f'<rect width="1" height="1" fill="{colour}"/></svg>'
    )
