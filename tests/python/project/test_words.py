"""tools/check_words.py: the words that it finds, and those that it leaves."""

import importlib.util
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "check_words.py"
_spec = importlib.util.spec_from_file_location("check_words", TOOL)
assert _spec is not None and _spec.loader is not None
check_words = importlib.util.module_from_spec(_spec)
sys.modules["check_words"] = check_words
_spec.loader.exec_module(check_words)


@pytest.mark.parametrize("banned", check_words.BANNED, ids=lambda each: each.pattern)
def test_each_word_is_found_in_prose_and_in_names(banned: check_words.Banned) -> None:  # type: ignore[name-defined]
    for word in banned.pattern.replace("\\w*", "s").replace("s?", "").split("|"):
        for text in (f"// It is {word} here.", f"kept_{word.replace(' ', '_')}_too = 1"):
            if " " in word and "_" in text:
                continue  # words of a name are joined
            found = check_words.words_in("docs/page.md", f"\n{text}\n")
            assert [each.line for each in found] == [2], text


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("csrc/a.cpp", "write_behind.h has the write-behind queue, and leaves nothing behind"),
        ("csrc/a.cpp", "collectives that are in flight; in_flight.h"),
        ("csrc/a.cpp", "a leaf tensor of autograd; a leaf node"),
        ("tests/python/scopes/test_a.py", "x.is_leaf"),
        ("docs/page.md", "clearly bookshelves, nearest, besides"),
    ],
)
def test_standard_english_is_left(file: str, text: str) -> None:
    assert check_words.words_in(file, text) == []


def test_one_allowed_use_does_not_cover_another() -> None:
    found = check_words.words_in("csrc/a.cpp", "leaves nothing behind; the block behind it")
    assert [each.word for each in found] == ["behind"]
