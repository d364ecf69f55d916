"""Writes build/messages.md: all messages that users can get, each said by a case that triggers it.

    python tests/python/script.py messages

It prints what differs from the page of the last run, messages without a case, and cases without a
message. The cases are in message_cases/, where templates.py finds the messages in the sources and
exceptions.py lists those that no case can trigger. test_messages.py compares all three.
"""

import difflib
import functools
import gc
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import warm_python
from message_cases.case import ROOT, Case, Said
from message_cases.exceptions import EXCEPTIONS, Exempt
from message_cases.templates import Template, templates
from script import python_path

HERE = Path(__file__).parent
PAGE = ROOT / "build" / "messages.md"
_WIDTH = 108
_HEAD = """\
# Messages
This page lists all messages of recoup: errors, notes on errors, warnings, output of the command
line and reports. `make messages` generates it by triggering each message.

An entry shows the code or the command that triggers the message, the kind of the message, the
source file that it comes from, and its text. Values that differ between runs and machines are in
capitals: `TIME`, `RATIO`, `SIZE`, `N`, `DIR`.
[reference.md](../docs/reference.md#terms) explains the terms,
[commands.md](../docs/commands.md#exit-codes) the exit codes.
"""


@dataclass(frozen=True)
class Entry:
    """A case, and what it says."""

    section: str
    shown: str
    said: list[Said]
    masked: bool = False
    """Whether all numbers are hidden."""


# ---- collecting ----


def collect() -> list[Entry]:
    """Runs all cases, in a process of its own."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "120",
        "PYTHONPATH": python_path(str(HERE), str(HERE.parent / "cli")),
    }
    for name in ("RECOUP_TEST_AIDS", "RECOUP_GPUS", "TERM"):
        environment.pop(name, None)
    command = [sys.executable, __file__, "--collect"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    rows = json.loads(done.stdout)
    return [Entry(**row | {"said": [Said(**each) for each in row["said"]]}) for row in rows]


def _collect_here() -> list[Entry]:
    from message_cases import arguments, command_lines, recordings, reports, scopes
    from message_cases.case import all_said

    sections: dict[str, list[Case]] = {}
    for module in (scopes, arguments, recordings, command_lines, reports):
        sections |= module.SECTIONS
    _load_all()
    cases = [(section, case) for section, found in sections.items() for case in found]
    said = all_said([case for _, case in cases])
    return [
        Entry(section, case.shown, each, case.masked)
        for (section, case), each in zip(cases, said, strict=True)
    ]


def _load_all() -> None:
    """What the cases would each load."""
    import torch

    import recoup.commands.compare.command
    import recoup.commands.suggest.command
    import recoup.commands.verify.command
    import recoup.offline.dtr_log
    import recoup.offline.optimum
    import recoup.offline.optimum_steady

    del recoup
    warm_python.install("torch._dynamo")  # the first step of an optimizer loads it
    torch.optim.SGD([torch.ones(1)]).step()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # a child's collections are of its own objects


# ---- comparing with the sources ----


@dataclass(frozen=True)
class Coverage:
    """Which messages of the sources are said."""

    unsaid: list[Template]
    """By no case, and no exception."""
    exempt: list[tuple[Exempt, list[Template]]]
    """Those of each exception; an empty list: it is not needed any more."""


def compare(entries: list[Entry]) -> Coverage:
    texts = "\0".join(each.text for entry in entries for each in entry.said)
    unsaid = [each for each in templates() if not each.is_said_in(texts)]
    exempt: list[tuple[Exempt, list[Template]]] = [(each, []) for each in EXCEPTIONS]
    left = []
    for template in unsaid:
        found = next((ones for each, ones in exempt if each.covers(template)), left)
        found.append(template)
    return Coverage(left, exempt)


# ---- the page ----

_MEMORY = "the memory (of its device|that this process may take)"
_VARYING = [
    (re.compile(r"0x[0-9a-f]{6,}"), "ADDRESS"),
    (re.compile(r"(?<=/)(\.[\w.]+\.)\w{8}\b"), r"\1RANDOM"),
    (re.compile(r"(?<![-.\w])(\d{1,3} ns|\d[\d,]*\.\d+ ?(us|ms|s))\b(?!/)"), "TIME"),
    (re.compile(r"\b\d[\d.]*(?=/s\b)"), "RATE"),
    (re.compile(r"\b\d+\.\d+x"), "RATIOx"),
    (re.compile(rf"{_MEMORY}, [^;]*(?=; got '1000TiB')"), "the memory of its device, SIZE"),
    (re.compile(r"PyTorch \d+\.\d[\w.+]*"), "PyTorch VERSION"),
    (re.compile(r"(?<=torch==)[\d.]+"), "VERSION"),
    (re.compile(r"(?<=reads version )\d+"), "VERSION"),
]


# With a unit, and not in a name.
_NUMBER = re.compile(r"(?<![\w.])\d(?:[\d,.]*\d)?( ?([KMGT]i?B|B|bytes|%)(?!\w))?(?!\w)")


def normalized(text: str) -> str:
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return text


def page(entries: list[Entry], coverage: Coverage) -> str:
    """The text of build/messages.md."""
    parts = [_HEAD]
    origins = _Origins()
    section, seen = "", set[str]()
    for entry in entries:
        if entry.section != section:
            section = entry.section
            parts.append(f"{_end(parts)}\n## {section}\n\n```text")
        parts.append("\n".join(_lines(entry, origins, seen)))
    parts.append("```\n\n" + "\n".join(_exempt_lines(coverage)))
    return "\n".join(parts) + "\n"


def _end(parts: list[str]) -> str:
    return "```\n" if len(parts) > 1 else ""


def _lines(entry: Entry, origins: "_Origins", seen: set[str]) -> Iterator[str]:
    code = entry.shown.splitlines()
    is_command = code[0].startswith("$")
    yield "" if is_command else ">>> " + code[0]
    yield from code if is_command else ["... " + line for line in code[1:]]
    for each in entry.said:
        if each.kind == "exit code":
            yield f"  exit code {each.text}"
            continue
        text = normalized(each.text)
        if entry.masked:
            text = re.sub(r" {2,}", "  ", _NUMBER.sub("N", text))
        origin = origins.of(each)
        yield f"  {each.kind}{f', {origin}' if origin else ''}:"
        if each.kind == "note" and text in seen:
            text = "(as above)"
        seen.add(text)
        for line in text.splitlines():
            yield from _wrapped(line)


def _wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line,
        _WIDTH,
        initial_indent="    ",
        subsequent_indent=f"    {indent}",
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


_LEAST_LETTERS = 12  # a shorter text is in many messages


class _Origins:
    """The files that messages come from: that of the longest template that fits."""

    def __init__(self) -> None:
        found = [each for each in templates() if len("".join(each.pieces)) >= _LEAST_LETTERS]
        self._templates = sorted(found, key=lambda each: -sum(map(len, each.pieces)))

    @functools.cache  # noqa: B019
    def of(self, said: Said) -> str:
        found = [each.file for each in self._templates if each.is_said_in(said.text)]
        if said.place:
            found = [each for each in found if each == said.place or each.startswith("csrc/")]
            found.sort(key=lambda each: each != said.place)
        elif said.kind in ("stderr", "stdout"):
            found.sort(key=lambda each: each.startswith("python/recoup/page/"))
        return found[0] if found else said.place


def _exempt_lines(coverage: Coverage) -> Iterator[str]:
    yield "## Not triggered here"
    yield "`...` stands for a value."
    by_reason: dict[str, dict[str, list[str]]] = {}
    for exempt, found in coverage.exempt:
        if exempt.is_message:
            files = by_reason.setdefault(exempt.reason, {})
            for template in found:
                texts = files.setdefault(template.file, [])
                if template.text.strip() not in texts:
                    texts.append(template.text.strip())
    for reason, files in by_reason.items():
        yield f"\n{reason}\n\n```text"
        for file, texts in files.items():
            yield f"{file}:"
            yield from (line for text in texts for line in _wrapped(text))
        yield "```"


def main() -> int:
    if "--collect" in sys.argv:
        output = os.fdopen(os.dup(1), "w")
        json.dump([asdict(entry) for entry in _collect_here()], output)
        output.flush()
        return 0
    entries = collect()
    coverage = compare(entries)
    problems = [f"nothing is said: {entry.shown}" for entry in entries if not entry.said]
    problems += [f"no case says {one.file}:{one.line}: {one.text!r}" for one in coverage.unsaid]
    problems += [f"no exception is needed: {one}" for one, found in coverage.exempt if not found]
    for line in (*_write(page(entries, coverage)), *problems):
        print(line)
    count = sum(len(entry.said) for entry in entries)
    print(f"{PAGE.relative_to(ROOT)}: {count} messages of {len(entries)} cases")
    return bool(problems)


def _write(text: str) -> list[str]:
    """Writes the page, and returns its differences from the page of the last run."""
    before = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else None
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    if before is None:
        return []
    return list(difflib.unified_diff(before, text.splitlines(), "before", "now", lineterm="", n=1))


if __name__ == "__main__":
    sys.exit(main())
