"""Each message of the sources has a case that triggers it, and `make messages` writes them all."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import messages
import recoup
from message_cases.case import Said, programs
from message_cases.exceptions import EXCEPTIONS
from message_cases.templates import Template, of_cpp, of_python
from recoup.words import WORDS


@dataclass(frozen=True)
class Found:
    entries: list[messages.Entry]
    coverage: messages.Coverage
    page: str


@pytest.fixture(scope="module")
def found() -> Found:
    entries = messages.collect()
    coverage = messages.compare(entries)
    return Found(entries, coverage, messages.page(entries, coverage))


def test_every_message_of_the_sources_has_a_case(found: Found) -> None:
    unsaid = [f"{each.file}:{each.line}: {each.text!r}" for each in found.coverage.unsaid]
    assert unsaid == [], "write a case in message_cases, or an exception with a reason"


def test_every_exception_is_needed(found: Found) -> None:
    assert [exempt for exempt, templates in found.coverage.exempt if not templates] == []
    assert len(EXCEPTIONS) < 50 and all(each.reason.endswith(".") for each in EXCEPTIONS)


def test_every_case_has_a_message(found: Found) -> None:
    assert [entry.shown for entry in found.entries if not entry.said] == []
    for section, entries in Counter(entry.section for entry in found.entries).items():
        assert entries >= 3, section


def test_the_page_has_every_case_and_every_message_without_one(found: Found) -> None:
    lines = found.page.splitlines()
    for entry in found.entries:
        assert f"## {entry.section}" in lines
        assert entry.shown.splitlines()[0] in {line.removeprefix(">>> ") for line in lines}
    words = " ".join(found.page.split())
    for exempt, templates in found.coverage.exempt:
        for template in templates:
            assert not exempt.is_message or " ".join(template.text.split()) in words


def test_the_page_has_no_path_of_this_machine(found: Found) -> None:
    assert str(messages.ROOT) not in found.page
    assert f"{Path.home()}/" not in found.page


# ---- the search for messages ----


def test_messages_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("message_cases.templates.ROOT", tmp_path)
    file = tmp_path / "module.py"
    file.write_text(
        '''"""A docstring of many words is no message."""

def function(size, add_argument):
    """Neither is this one, of many words."""
    add_argument("--size", help="nor is this one, of many words")
    if size < 0:
        raise ValueError(f"size is {size}; {'it is negative' if size else ''}")
    print("short")
    return "a text of four words", "three words only"
''',
        encoding="utf-8",
    )
    assert [each.text for each in of_python(file)] == [
        "size is ...; ",
        "it is negative",
        "short",
        "a text of four words",
    ]


def test_messages_in_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("message_cases.templates.ROOT", tmp_path)
    file = tmp_path / "source.cpp"
    file.write_text(
        r"""
#include "csrc/not/a/message/of/many/words.h"
#error "nor is what only the compiler says"
// "a comment of many words"
void f(int n) {
  RECOUP_CHECK(n > 0, "for our own bugs alone: n ", n);
  TORCH_CHECK(n > 1, "there are ", n, " tensors, "
              "not ", std::max(n, 2));
  throw std::invalid_argument(str_cat("a size of ", n, n > 2 ? " bytes" : " is wrong"));
  module.def("f", &f, "A docstring of many words");
}
""",
        encoding="utf-8",
    )
    assert [each.text for each in of_cpp(file)] == [
        "there are ... tensors, not ",
        "a size of ",
        " bytes",
        " is wrong",
    ]


def test_a_template_matches_within_one_text_only() -> None:
    template = Template("file.py", 1, ("there are ", " tensors"))
    assert template.is_said_in("note\0recoup: there are 3 tensors.")
    assert not template.is_said_in("there are three\0 tensors")


def test_values_that_differ_between_runs_are_hidden() -> None:
    text = "about 1.13x: 2.48 ms at 0x7f9a15b24bf0, 4.17/s, PyTorch 2.13.0+cpu in 3 steps"
    said = "about RATIOx: TIME at ADDRESS, RATE/s, PyTorch VERSION in 3 steps"
    assert messages.normalized(text) == said
    entry = messages.Entry("section", "f()", [Said("stdout", "peak 3.1 MiB of 16 MiB")], True)
    assert "    peak N of N" in messages._lines(entry, messages._Origins(), set())


def test_a_case_has_the_output_of_its_process(tmp_path: Path) -> None:
    code = """
import sys, warnings
warnings.warn("a warning")
print("out")
print("err", file=sys.stderr)
raise ValueError("an error")
"""
    (case,) = programs(code)
    from message_cases.case import all_said

    kinds = {each.kind: each.text for each in all_said([case])[0]}
    assert kinds == {
        "ValueError": "an error",
        "UserWarning": "a warning",
        "stderr": "err",
        "stdout": "out",
    }


# ---- the words in messages ----


def test_the_glossary_defines_the_words_of_pages_and_reports() -> None:
    page = (messages.ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    text = " ".join(page.partition("\n## Terms\n")[2].partition("\n## ")[0].split())
    for word, meaning in WORDS.items():
        assert f"**{word}**: {meaning}." in text
    assert text.count("**") == 2 * len(WORDS)
    with recoup.budget("1MiB") as run:
        torch.ones(4)
    assert "`recoup glossary`" in run.report()
    for word in WORDS:
        assert f'<th scope="row">{word}</th>' in run.page()


# ---- the changes that `make messages` prints ----


def test_differences_from_the_last_page_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "PAGE", tmp_path / "build" / "messages.md")
    assert messages._write("one\ntwo\nthree\n") == []
    assert messages._write("one\ntwo\nthree\n") == []
    changes = messages._write("one\n2\nthree\n")
    assert [line for line in changes if line[0] in "+-"] == ["--- before", "+++ now", "-two", "+2"]
    assert messages.PAGE.read_text("utf-8") == "one\n2\nthree\n"
