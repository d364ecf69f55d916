"""docs/messages.md has all messages of the sources, each as recoup writes it now."""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import message_sources
import messages
import recoup
from message_cases.case import Said, programs
from message_cases.exceptions import EXCEPTIONS
from message_cases.templates import Template, of_cpp, of_python, templates
from recoup._build import TORCH_VERSION
from recoup.words import WORDS

# The messages of the page are those with the PyTorch that recoup is developed with, without CUDA.
# Before Python 3.11, errors have no notes.
IS_THAT_OF_THE_PAGE = (
    torch.__version__.partition("+")[0] == TORCH_VERSION
    and torch.version.cuda is None
    and sys.version_info >= (3, 11)
)


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


@pytest.mark.skipif(not IS_THAT_OF_THE_PAGE, reason="the page is of another PyTorch or Python")
def test_the_page_is_up_to_date(found: Found) -> None:
    said = found.page.splitlines()
    page = messages.PAGE.read_text(encoding="utf-8").splitlines()
    assert said == page, "python tests/python/script.py messages --write writes it"


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


# ---- the quick comparison of `make lint` ----


def test_lint_finds_a_message_that_the_page_lacks_or_lists_for_another_file() -> None:
    page = messages.PAGE.read_text(encoding="utf-8")
    found = templates()
    assert message_sources.differences(page, found) == []
    new = Template("csrc/disk/tier.cpp", 7, ("no page has ", " of these words"))
    assert message_sources.differences(page, [*found, new]) == [
        "csrc/disk/tier.cpp:7: the page lacks 'no page has ... of these words'"
    ]
    first, second = (
        "    a block in memory cannot be read\n",
        "    the system has no memory for a block\n",
    )
    swapped = page.replace(first + second, second + first)
    assert message_sources.differences(swapped, found) == [
        "csrc/disk/page_copies.cpp: the page lists its messages in another order"
    ]
    moved = page.replace("\ncsrc/disk/paged_memory.cpp:\n", "\ncsrc/disk/tier.cpp:\n")
    assert any("which the page lists" in line for line in message_sources.differences(moved, found))
