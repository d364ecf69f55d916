"""Compares docs/messages.md with the sources without triggering a message: a second of `make lint`.

    python tests/python/script.py message_sources

It finds a message that the page lacks, and a heading of the section of messages without a case
that names another file than the message's. test_messages.py compares every word, in minutes.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from message_cases.case import ROOT
from message_cases.exceptions import EXCEPTIONS
from message_cases.templates import Template, templates

PAGE = ROOT / "docs" / "messages.md"
_NO_CASE = "## Not triggered here"
# The page hides some numbers with their units, which may stand in the piece after a value.
_NUMBER = re.compile(r"\d(?:[\d,.]*\d)?( ?([KMGT]i?B|bytes|%))?")
_UNIT = re.compile(r"^ ?([KMGT]i?B|bytes|%)")


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", _NUMBER.sub("N", text))


def _is_on(flat_page: str, template: Template) -> bool:
    pieces = (_flat(_UNIT.sub("", piece)).strip() for piece in template.pieces)
    return all(piece in flat_page for piece in pieces)


def _without_case(page: str) -> Iterator[tuple[str, str]]:
    """The files of the messages without a case, each with its messages in one line."""
    _, _, section = page.partition(_NO_CASE)
    for block in re.findall(r"```text\n(.*?)```", section, re.DOTALL):
        for file, texts in re.findall(r"^(\S+):\n((?: .*\n)+)", block, re.MULTILINE):
            yield file, " ".join(texts.split())


def differences(page: str, found: list[Template]) -> list[str]:
    """A line for each message that the page lacks, or lists for a file that does not have it."""
    flat_page = _flat(page)
    lines = [
        f"{each.file}:{each.line}: the page lacks {each.text!r}"
        for each in found
        if not _is_on(flat_page, each)
        and not any(one.covers(each) and not one.is_message for one in EXCEPTIONS)
    ]
    texts_of = dict[str, list[str]]()
    for each in found:
        texts_of.setdefault(each.file, []).append(" ".join(each.text.split()))
    for file, left in _without_case(page):
        places = dict[str, int]()
        for text in sorted(texts_of.get(file, []), key=len, reverse=True):
            if found_text := re.search(rf"(?<!\S){re.escape(text)}(?!\S)", left):
                places[text] = found_text.start()
                # Blanks: places of the other texts stay the same.
                left = left.replace(text, " " * len(text))
        ordered = [places[text] for text in dict.fromkeys(texts_of.get(file, [])) if text in places]
        if ordered != sorted(ordered):
            lines.append(f"{file}: the page lists its messages in another order")
        if left.strip():
            lines.append(f"{file}: it has no message {left.strip()!r}, which the page lists")
    return lines


def main(page: Path = PAGE) -> int:
    found = differences(page.read_text(encoding="utf-8"), templates())
    for line in found:
        print(line)
    if found:
        print("python tests/python/script.py messages --write writes the page")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
