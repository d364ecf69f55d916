"""Compares the records of a plain run with those of a run in scopes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from records import Record

ERROR_SHOWN = 200


@dataclass
class Comparison:
    name: str
    mode: str
    compared: int = 0
    passed_plain: int = 0
    passed: int = 0
    evictions: int = 0
    differences: list[tuple[str, str]] = field(default_factory=list)
    """Id of a test, and the difference."""


def compare(
    name: str, mode: str, plain: Mapping[str, Record], scoped: Mapping[str, Record]
) -> Comparison:
    both = [test for test in scoped if test in plain and plain[test].outcome != "skipped"]
    result = Comparison(name, mode, len(both))
    for test in both:
        result.passed_plain += plain[test].outcome == "passed"
        result.passed += scoped[test].outcome == "passed"
        result.evictions += scoped[test].evictions
        if difference := difference_of(plain[test], scoped[test]):
            result.differences.append((test, difference))
    return result


def difference_of(plain: Record, scoped: Record) -> str:
    """The difference; empty if there is none."""
    if plain.outcome != scoped.outcome:
        return f"{plain.outcome} plain, {scoped.outcome} in a scope: {_first_line(scoped.error)}"
    if scoped.exit_error:
        return f"the scope did not end: {scoped.exit_error[:ERROR_SHOWN]}"
    if scoped.outcome == "failed" and _kind(plain.error) != _kind(scoped.error):
        return f"another error: {_first_line(scoped.error)}"
    if scoped.outcome == "passed" and plain.digest != scoped.digest:
        return f"other values among the {scoped.values} that it compared"
    return ""


def table(comparisons: list[Comparison]) -> str:
    lines = [
        "| suite | mode | compared | passed plain | passed in a scope | evictions | differences |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for one in comparisons:
        lines.append(
            f"| {one.name} | {one.mode} | {one.compared:,} | {one.passed_plain:,} "
            f"| {one.passed:,} | {one.evictions:,} | {len(one.differences):,} |"
        )
    for one in comparisons:
        if one.differences:
            lines += ["", f"{one.name}, {one.mode}:"]
            lines += [f"- `{test}`: {difference}" for test, difference in one.differences]
    return "\n".join(lines) + "\n"


def _first_line(error: str) -> str:
    return error.split("\n", 1)[0][:ERROR_SHOWN]


def _kind(error: str) -> str:
    """The exception's type. Its message may contain numbers that differ between runs."""
    return _first_line(error).split(":", 1)[0]
