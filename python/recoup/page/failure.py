"""The section of a page about a failure of the run, with the holders of memory at that moment."""

from collections.abc import Mapping, Sequence
from typing import Any

from recoup._memory.sizes import format_bytes
from recoup.page.holders import holders_tables
from recoup.page.tables import pairs_table
from recoup.page.texts import NOTHING, escape, module_name

_ENDED = {
    "body": "The program ended with an exception.",
    "exit": "The exit of the scope raised an exception.",
}
_ENDED_BY = {
    "KeyboardInterrupt": "The program was interrupted.",
    "SystemExit": "The program ended with an exit code other than 0.",
    "recoup.commands.programs.Terminated": "The program was ended by SIGTERM.",
}
_LABELS = {
    "asked_bytes": "allocation",
    "budget_bytes": "budget",
    "external_bytes": "outside the pool",
    "non_recomputable_bytes": "cannot be recomputed",
    "pinned_bytes": "pinned",
    "workspace_bytes": "workspace of kernels",
    "evictable_bytes": "evictable",
    "largest_window_bytes": "largest range that can be freed",
    "least_bytes": "lower bound of the budget",
    "next_bytes": "budget to try next",
    "next_spill_bytes": "spill tier to try next",
    "enough_bytes": "upper bound of the budget",
}
_BUDGETS = (
    "least_bytes",
    "next_bytes",
    "next_spill_bytes",
    "enough_bytes",
)  # 0: none, or not known


def failure_section(report: Mapping[str, Any]) -> str:
    """How the run failed; empty if it did not."""
    failures: Sequence[Mapping[str, Any]] = report["failures"]
    if not failures:
        return ""
    moment = "\n".join(map(_failure, failures))
    return f'<section id="failure"><h2>How it failed</h2>\n{moment}</section>\n'


def _failure(failure: Mapping[str, Any]) -> str:
    message = f": {escape(failure['message'])}" if failure["message"] else ""
    ended = _ENDED[failure["where"]]
    if failure["where"] == "body":
        ended = _ENDED_BY.get(failure["type"], ended)
    parts = [
        f'<div class="failed"><p>{ended}</p>\n'
        f"<p><code><b>{escape(failure['type'])}</b>{message}</code></p></div>"
    ]
    if failure["figures"]:
        parts.append(_refused(failure))
    if failure["help"]:
        lines = "".join(f"<li>{escape(line)}</li>" for line in failure["help"])
        parts.append(f"<h3>What would have helped</h3><ul>{lines}</ul>")
    if failure["rows"] is not None:
        held = format_bytes(failure["charged_bytes"])
        parts.append(
            f"<h3>The {held} that were charged at that moment</h3>"
            f"{holders_tables(failure['rows'], failure['charged_bytes'], label='At the failure')}"
        )
    elif failure["figures"]:
        parts.append(
            '<p class="quiet">The holders of memory are known only for runs with '
            "recoup.budget(profile=&quot;modules&quot;).</p>"
        )
    return "\n".join(parts)


def _refused(failure: Mapping[str, Any]) -> str:
    what = {"op": failure["op"], "module": module_name(failure["module"])}
    if failure["rows"] is None:
        del what["module"]  # the module is not known
    sizes = {
        _LABELS.get(name, name): format_bytes(size) if size or name not in _BUDGETS else NOTHING
        for name, size in failure["figures"].items()
    }
    return pairs_table({**what, **sizes}, label="the allocation that did not fit")
