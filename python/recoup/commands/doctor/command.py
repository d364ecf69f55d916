"""The command `recoup doctor`: shows on one screen what recoup finds on this machine."""

import argparse
import functools
import json
from typing import Any

from recoup.commands.doctor import probes as doctor_probes
from recoup.commands.doctor.probes import Finding, look

_MOST_LINES = 24


def run(options: argparse.Namespace) -> int:
    """Prints the findings of the probes. Returns the exit code."""
    probes: dict[str, doctor_probes.Probe] = {
        "versions": doctor_probes.versions,
        "budgets": doctor_probes.scopes,
        "memory": doctor_probes.memory,
        "allocator": doctor_probes.allocator,
        "huge pages": doctor_probes.huge_pages,
        "threads": doctor_probes.threads,
        "disk": functools.partial(doctor_probes.disk, options.spill_dir),
        "GPUs": doctor_probes.graphics,
    }
    findings = {name: look(probe) for name, probe in probes.items()}
    print(_json(findings) if options.json else _screen(findings))
    return 0


def _json(findings: dict[str, Finding]) -> str:
    data: dict[str, Any] = {
        name.replace(" ", "_").lower(): each.data for name, each in findings.items()
    }
    data["unsupported"] = _unsupported(findings)
    return json.dumps(data, indent=2)


def _unsupported(findings: dict[str, Finding]) -> list[str]:
    return [line for each in findings.values() for line in each.unsupported]


def _screen(findings: dict[str, Finding]) -> str:
    """At most `_MOST_LINES` lines."""
    width = max(map(len, findings)) + 2
    lines = [f"{name:<{width}}{_in_one_line(each.text)}" for name, each in findings.items()]
    missing = [f"- {_in_one_line(line)}" for line in _unsupported(findings)]
    lines.append("unsupported here:" if missing else "unsupported here: nothing")
    room = _MOST_LINES - len(lines)
    if len(missing) > room:
        rest = len(missing) - room + 1
        missing = [*missing[: room - 1], f"- {rest} more: run recoup doctor --json"]
    return "\n".join(lines + missing)


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
