"""recoup glossary prints the terms of reports, pages and messages."""

import pytest

from command import cli_here
from recoup.words import WORDS


def test_every_term_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    printed = cli_here(capsys, "glossary").stdout
    assert all(len(line) <= 88 for line in printed.splitlines())
    words = " ".join(printed.split())
    for term, meaning in WORDS.items():
        assert f"{term}: {meaning}" in words


def test_one_term_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    printed = cli_here(capsys, "glossary", "evict").stdout
    assert " ".join(printed.split()) == f"evict: {WORDS['evict']}"
