"""Fails on words that readers outside the project have to guess at.

Each entry is a pattern and what to write instead. The check reads whole files, so it covers
comments, docstrings, messages, names of tests and identifiers that contain a word.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
READ = re.compile(
    r"\.(h|cpp|cu|py|pyi|md|sh|js|css|html|toml|yml|in)$|(^|/)(Makefile|CMakeLists\.txt)$"
)
# Third parties wrote these, or they list the words.
UNREAD = re.compile(r"^third_party/|^tools/check_words\.py$|/test_words\.py$")


class Banned(NamedTuple):
    pattern: str
    instead: str
    allowed: str = r"(?!)"
    """Text around a match in which the word is standard English."""


BANNED = [
    # A sentence needs a standard noun as its subject.
    Banned("nobody|no one", "no thread, no value, no caller: the noun that is meant"),
    Banned("whoever", "the noun that is meant"),
    Banned("what is there|what there is|of those that", "the noun that is meant"),
    Banned("so many", "N, or the number of", r"so many that"),
    Banned("in its stead|in their stead", "instead"),
    # Verbs of persons for code.
    Banned(
        "told|hears?|mends?|mended", "receives, is called, knows, repairs: the verb that is meant"
    ),
    # A comment says itself what is meant.
    Banned("(?-i:// The same)", "what the function does"),
    # False friends.
    Banned("dear|dearer|dearest", "expensive, more expensive, most expensive"),
    Banned(
        "behind",
        "after, or hidden by",
        r"(left|leaves?|leaving|lags?|falls?)( \w+){0,2} behind|writ(e|ten).?behind",
    ),
    Banned("beside", "next to, in addition to, or at the same time as"),
    # Words for which the field has a term: see include/recoup/types.h.
    Banned(
        "leaf|leafs", "non-recomputable value, or source", r"leaf (tensor|node|of a tree)|autograd"
    ),
    Banned("second tier", "spill tier"),
    Banned("islands?", "immovable block"),
    Banned("guests?", "opaque op"),
    Banned("forsak\\w*|forsook", "disown"),
    Banned("settled?|settles|settling", "collect, detach, decide, or end"),
    Banned("itinerar\\w*", "next-use predictor"),
    Banned("flights?", "copy, or collective", r"in.flight"),
    Banned("books", "metadata"),
]
# Files in which a word has its other meaning.
EXEMPT = {
    "leaf": re.compile(
        r"^tests/python/|^python/recoup/(page/|_patching/(scripts|module_names)|bench/nets/)"
    ),  # of autograd, of a pytree, of a tree on the page
    # A page in a browser settles.
    "settle": re.compile(r"^tests/python/(support/chromium|reports/test_page_browser)\.py$"),
}


ANY = re.compile("|".join(f"(?:{each.pattern})" for each in BANNED), re.IGNORECASE)
"""Finds a superset quickly: most files have none."""


class Found(NamedTuple):
    file: str
    line: int
    word: str
    instead: str


def words_in(name: str, text: str) -> list[Found]:
    """The banned words of a file, by line. A name is read as its words: `is_dear`, `DearOp`."""
    found: list[Found] = []
    if not ANY.search(text):
        return found
    for number, line in enumerate(text.splitlines(), 1):
        if not ANY.search(line):
            continue
        for each in BANNED:
            for match in re.finditer(rf"(?<![A-Za-z])({each.pattern})(?![A-Za-z])", line, re.I):
                exempt = EXEMPT.get(match[1].lower())
                fine = any(
                    each_fine.start() <= match.start() and match.end() <= each_fine.end()
                    for each_fine in re.finditer(each.allowed, line, re.I)
                )
                if fine or (exempt and exempt.search(name)):
                    continue
                found.append(Found(name, number, match[1], each.instead))
    return found


def files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [each for each in listed if READ.search(each) and not UNREAD.search(each)]


def main(chosen: list[str]) -> int:
    checked = [each for each in files() if not chosen or any(map(each.startswith, chosen))]
    found = [
        one
        for each in checked
        if (ROOT / each).is_file()
        for one in words_in(each, (ROOT / each).read_text(encoding="utf-8"))
    ]
    for one in found:
        print(f"{one.file}:{one.line}: {one.word!r}: write {one.instead}")
    print(f"check_words: {len(checked)} files, {len(found)} words to replace")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
