"""Reads the declarations of C++ headers, with their comments.

A comment documents a declaration if it stands directly above it, or after it on its last line. A
declaration without a comment shares that above the declaration before it if no line is between them
and both are functions, fields or aliases.

This is no C++ parser. It knows the C++ that clang-format leaves in include/recoup: `//` comments
only, namespaces, classes, enums, functions and fields. It raises ValueError for block comments.

As a program, it is Doxygen's input filter: it prints the header that is its argument with `///`
comments.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_SPLIT = re.compile(r"""^((?:[^"'/]|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|'|/(?![/*]))*)(//.*)?$""")
_NAMESPACE = re.compile(r"^(?:inline\s+)?namespace\b\s*([\w:]*)")
_ENUM = re.compile(r"\benum\b(?:\s+(?:class|struct))?\s+(\w+)")
_CLASS = re.compile(r"\b(?:class|struct|union)\b\s+(?:RECOUP_API\s+)?(\w[\w:]*)")
_NOISE = re.compile(r"\[\[.*?\]\]|\bRECOUP_API\b|\b(?:public|private|protected)\s*:")
_HIDDEN_NAMESPACES = ("detail", "std")
# Operators mean what they mean for numbers and containers; the others are not functions to call.
_EXEMPT = re.compile(
    r"^(?:friend\b|static_assert\b|(?:enum\s+)?(?:class|struct)\s+[\w:]+$|using\s+[\w:]+$)"
    r"|=\s*(?:default|delete)$|\boperator\b|~\w+\s*\("
)


@dataclass
class Declaration:
    """A public declaration of a header. Lines count from 0."""

    kind: str
    """class, enum, enumerator, alias, function or field."""
    name: str
    """Qualified by classes, but not by namespaces."""
    first: int
    last: int
    comment: str = ""
    """The text of its own comment, or of the comment that it shares."""
    shared: bool = False
    """Whether the comment is that of the declaration before it."""

    @property
    def needs_comment(self) -> bool:
        """Whether a comment is required: for all but enumerators, whose enum may explain them."""
        return self.kind != "enumerator"


@dataclass
class _Scope:
    kind: str
    name: str
    public: bool
    """Whether a declaration at this point of the scope is public."""
    before: Declaration | None = field(default=None)


class Header:
    """A header: its lines, and its public declarations with their comments."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.code: list[str] = []
        self.comments: list[str] = []
        """By line, the comment with its slashes; empty if there is none."""
        continued = False
        for number, line in enumerate(self.lines, 1):
            parts = _SPLIT.match(line)
            if parts is None:
                raise ValueError(f"line {number}: only // comments are understood")
            is_directive = continued or line.lstrip().startswith("#")
            continued = is_directive and line.endswith("\\")
            self.code.append("" if is_directive else parts[1].rstrip())
            self.comments.append("" if is_directive else parts[2] or "")
        self.trailing: set[int] = set()
        """Lines with a comment that documents the code before it."""
        self.leading: set[int] = set()
        """Lines with a comment that documents the declaration below it."""
        self.declarations = list(self._declarations())

    def undocumented(self) -> list[Declaration]:
        """Declarations that need a comment and have none."""
        return [
            each
            for each in self.declarations
            if each.needs_comment and not each.comment and not each.name.startswith("std::")
        ]

    def for_doxygen(self) -> str:
        """The text of the header in the comment syntax of Doxygen."""
        shared = {each.first: each.comment for each in self.declarations if each.shared}
        made = []
        for number, (line, code) in enumerate(zip(self.lines, self.code, strict=True)):
            comment = self.comments[number]
            if number == 0 and comment:
                made.append("/// @file")
            if comment and not code and (number in self.leading or self._is_top(number)):
                line = line.replace("//", "///", 1)
            elif comment and number in self.trailing:
                line = f"{code}  ///< {comment[2:].strip()}"
            if self._is_table(number):
                if not self._is_table(number - 1):
                    made.append("///")
                line = f"///    {comment[2:]}"  # a block of code
            elif comment:
                line = line[: len(code)] + _escaped(line[len(code) :])
            if number in shared:
                line = f"/** {_escaped(shared[number])} */ {line}"
            made.append(line)
        return "\n".join(made) + "\n"

    def _is_table(self, number: int) -> bool:
        """Whether the line belongs to a table or a drawing of the comment at the header's top."""
        is_line = 0 < number < len(self.lines)
        return is_line and self._is_top(number) and self.comments[number].startswith("//   ")

    def _is_top(self, number: int) -> bool:
        return all(self.comments[: number + 1])

    def _declarations(self) -> Iterator[Declaration]:
        scopes = [_Scope("namespace", "", public=True)]
        text, first, depth, skipped = "", 0, 0, 0
        for number, code in enumerate(self.code):
            for at, char in enumerate(code + " "):
                if skipped:  # a function's body or an initializer
                    skipped += (char == "{") - (char == "}")
                    if skipped or not _is_function(text):
                        continue
                    rest = code[at + 1 :].lstrip()
                    if rest.startswith((",", "{")):  # of a list of initializers
                        continue
                    char = ";"
                if not text.strip():
                    text, first = "", number
                depth += (char in "([") - (char in ")]")
                if depth or char not in "{};,:":
                    text += char
                    continue
                scope = scopes[-1]
                if char == ",":
                    if scope.kind == "enum":
                        yield from self._declaration(scope, text, first, number)
                        text = ""
                    else:
                        text += char
                elif char == ":":
                    if text.strip() in ("public", "private", "protected"):
                        scope.public = text.strip() == "public"
                        text = ""
                    else:
                        text += char
                elif char == "{":
                    opened = self._opened(scope, text)
                    if opened is None:
                        skipped = 1
                        continue
                    if opened.kind != "namespace":
                        kind = opened.kind
                        yield from self._declaration(scope, text, first, number, kind, opened.name)
                    scopes.append(opened)
                    text = ""
                elif char == "}":
                    if scope.kind == "enum" and text.strip():
                        yield from self._declaration(scope, text, first, number)
                    scopes.pop()
                    text = ""
                else:
                    if text.strip():
                        yield from self._declaration(scope, text, first, number)
                    text = ""

    def _opened(self, scope: _Scope, head: str) -> _Scope | None:
        """The scope that a brace after `head` opens; None if it is a body or an initializer."""
        head = _plain(head)
        if found := _NAMESPACE.match(head):
            hidden = not found[1] or found[1] in _HIDDEN_NAMESPACES
            return _Scope("namespace", "", public=scope.public and not hidden)
        if "(" in head or "=" in head:
            return None
        prefix = f"{scope.name}::" if scope.name else ""
        if found := _ENUM.search(head):
            return _Scope("enum", prefix + found[1], public=scope.public)
        if found := _CLASS.search(head):
            public = scope.public and not re.search(r"\bclass\b", head)
            return _Scope("class", prefix + found[1], public=public)
        return None

    def _declaration(
        self, scope: _Scope, text: str, first: int, last: int, kind: str = "", name: str = ""
    ) -> Iterator[Declaration]:
        text = _plain(text)
        before, scope.before = scope.before, None
        if not scope.public:
            return
        if not kind:
            kind, name = _kind_and_name(scope, text)
            prefix = f"{scope.name}::" if scope.name else ""
            name = prefix + name
        made = Declaration(kind, name, first, last)
        made.comment = self._comment(made)
        if _EXEMPT.search(text) and kind not in ("class", "enum"):
            if not made.comment:
                return
        elif not made.comment and before is not None and self._shares(made, before):
            made.comment, made.shared = before.comment, True
        scope.before = made
        yield made

    def _shares(self, declaration: Declaration, before: Declaration) -> bool:
        """Whether the comment above `before` is for both: they are alike and adjacent."""
        is_alike = declaration.kind == before.kind not in ("class", "enum")
        is_adjacent = before.last == declaration.first - 1
        return is_alike and is_adjacent and (before.shared or before.first - 1 in self.leading)

    def _comment(self, declaration: Declaration) -> str:
        above = []
        line = declaration.first - 1
        while line >= 0 and self.comments[line] and not self.code[line]:
            above.append(line)
            line -= 1
        if above:
            self.leading.update(above)
        after = []
        if declaration.kind not in ("class", "enum") and self.comments[declaration.last]:
            after.append(declaration.last)
            self.trailing.update(after)
        lines = [*reversed(above), *after]
        return " ".join(self.comments[line].lstrip("/").strip() for line in lines)


def _plain(text: str) -> str:
    text = _NOISE.sub(" ", text).strip()
    while text.startswith("template"):
        depth = 0
        for at, char in enumerate(text):  # noqa: B007
            depth += (char == "<") - (char == ">")
            if char == ">" and depth == 0:
                break
        text = text[at + 1 :].strip()
    return " ".join(text.split())


def _is_function(text: str) -> bool:
    head = _plain(text)
    before, bracket, _ = head.partition("(")
    return bool(bracket) and ("=" not in before or "operator" in before)


def _kind_and_name(scope: _Scope, text: str) -> tuple[str, str]:
    if scope.kind == "enum":
        return "enumerator", re.split(r"\W", text, maxsplit=1)[0]
    if found := re.match(r"using\s+(\w+)\s*=", text):
        return "alias", found[1]
    if found := re.search(r"\(\*(\w+)\)\(", text):
        return "field", found[1]
    if _is_function(text):
        found = re.search(r"(operator\s*\S+?|~?\w+)\s*\(", text)
        return "function", found[1] if found else text
    names = re.findall(r"\w+", re.split(r"[={\[]", text, maxsplit=1)[0])
    return "field", names[-1] if names else text


def _escaped(comment: str) -> str:
    """Without what Doxygen would take for markup: commands, tags and emphasis."""
    parts = comment.split("`")
    parts[::2] = [re.sub(r"[@\\*](?!/)|<(?=[\w/])", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts).replace("/\\*", "/*").replace("///\\<", "///<")


if __name__ == "__main__":
    print(Header(Path(sys.argv[1]).read_text(encoding="utf-8")).for_doxygen(), end="")
