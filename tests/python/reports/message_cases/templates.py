"""Templates of all messages in the sources: what is literal in them, and where they stand.

A text is a message if it is in what raises, warns or prints, or if it has some words: texts are
made in functions too. Python's are found in its syntax trees, C++'s among its tokens.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from message_cases.case import ROOT

# Calls whose arguments are said to somebody.
SAYING = {"warn", "print", "error", "fail", "say", "add_note", "exit", "wrong", "say_at_the_end"}
# Keywords of argparse and of pictures: `--help` lists these texts.
OF_HELP = {"help", "description", "epilog", "usage", "metavar", "title", "label", "prog"}
# Folders of pages, pictures and nets: there only what is raised, warned or printed is a message.
NO_TEXTS = ("python/recoup/page/", "python/recoup/bench/")
# A text of at least this many words is a message wherever it stands.
WORDS = 4

# Of C++: what ends a scope or an op, and what makes texts.
CPP_SAYING = re.compile(
    r"TORCH_CHECK|TORCH_WARN|C10_THROW_ERROR|fail|fail_at|fail_in|refuse|wrong|check_part|"
    r"check_count|\w*(?<!Internal)Error|BadTrace|InjectedFault|ReplayDiffers|LayoutDoesNotFit|"
    r"invalid_argument|runtime_error|logic_error|value_error|type_error|Member|real|row"
)
# For our own bugs, for docstrings of the bindings, and names of ops, which are no messages.
CPP_SILENT = {
    "RECOUP_CHECK",
    "InternalError",
    "static_assert",
    "def",
    "registerImpl",
    "schedule",
    "add",
}
# What policies, planners and orders are: `recoup policies` and `--help` list it.
CPP_LISTS = re.compile(r"csrc/policy/policies/|csrc/offline/(layout/registry|order/order)\.cpp")


@dataclass(frozen=True)
class Template:
    """A message with gaps, where what varies stands."""

    file: str
    line: int
    pieces: tuple[str, ...]

    @property
    def text(self) -> str:
        return "...".join(self.pieces)

    def is_said_in(self, texts: str) -> bool:
        """Whether one of the texts, between which is a null, has all pieces in their order."""
        if not all(piece in texts for piece in self.pieces):  # most are not: this is fast
            return False
        return re.search(r"[^\0]*?".join(map(re.escape, self.pieces)), texts) is not None


def templates() -> list[Template]:
    """All of them."""
    found = [each for file in _files("python/recoup", ".py") for each in of_python(file)]
    for folder in ("csrc", "include"):
        found += [each for file in _files(folder, ".cpp", ".h") for each in of_cpp(file)]
    return found


def _files(folder: str, *suffixes: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes)


def _words(text: str) -> int:
    return len(re.findall(r"(?<!\S)\W*[A-Za-z]{2,}", text))


def _is_text(pieces: tuple[str, ...]) -> bool:
    """Not HTML, nor names of modules."""
    whole = " ".join(pieces)
    return sum(map(_words, pieces)) >= WORDS and "</" not in whole


# ---- Python ----


def of_python(file: Path) -> list[Template]:
    name = file.relative_to(ROOT).as_posix()
    return list(_PythonTexts(name).of(ast.parse(file.read_text(encoding="utf-8")), said=False))


class _PythonTexts:
    def __init__(self, file: str) -> None:
        self._file = file
        self._only_said = file.startswith(NO_TEXTS)

    def of(self, node: ast.AST, *, said: bool) -> Iterator[Template]:
        """Those in `node`; `said`: it is in what says it."""
        pieces = _pieces(node)
        if pieces is None:
            said = (said and not isinstance(node, ast.Subscript | ast.Compare)) or _says(node)
            for child in _children(node):
                yield from self.of(child, said=said)
            return
        is_message = sum(map(_words, pieces)) > 0 if said else _is_text(pieces)
        if is_message and (said or not self._only_said):
            yield Template(self._file, getattr(node, "lineno", 0), pieces)
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    yield from self.of(part.value, said=said)


def _pieces(node: ast.AST) -> tuple[str, ...] | None:
    """Of a string, formatted or not; None: it is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value,)
    if isinstance(node, ast.JoinedStr):
        parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
        return tuple(str(part) for part in parts)
    return None


def _says(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else None
    return (name or getattr(node.func, "id", "")) in SAYING


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        is_help = isinstance(child, ast.keyword) and child.arg in OF_HELP
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not is_help and not is_docstring:
            yield child


# ---- C++ ----

_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|#\s*(?:include|error)\b[^\n]*"
    r'|R"\((?P<raw>.*?)\)"|"(?P<text>(?:\\.|[^"\\\n])*)"'
    r"|'(?:\\.|[^'\\])+'|[A-Za-z_]\w*|\d[\w']*|::|\s+|.",
    re.DOTALL,
)


class _Call:
    """What stands between a pair of parentheses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pieces: list[str] = []
        self.line = 0


def of_cpp(file: Path) -> list[Template]:
    """Literals of one call are the pieces of one template; those of a choice are each their own."""
    name, text = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
    found: list[Template] = []
    stack = [_Call("")]
    word, follows, chooses, line = "", False, False, 1

    def end(call: _Call) -> None:
        names = [each.name for each in (*stack, call)]
        if call.pieces and _is_cpp_message(name, names, tuple(call.pieces)):
            found.append(Template(name, call.line, tuple(call.pieces)))
        call.pieces = []

    for token in _TOKEN.finditer(text):
        whole = token[0]
        line += whole.count("\n")
        literal = token["text"] if token["text"] is not None else token["raw"]
        if whole.isspace() or whole.startswith(("//", "/*", "#")):
            continue
        if literal is not None:
            piece = _unescape(literal) if token["raw"] is None else literal
            call = stack[-1]
            if follows:
                call.pieces[-1] += piece
            else:
                if chooses:
                    end(call)
                call.pieces.append(piece)
            call.line, follows = line, True
            continue
        follows = False
        if whole == "(":
            stack.append(_Call(word))
            word = ""
        elif whole == ")" and len(stack) > 1:
            end(stack.pop())
            chooses = False
        elif whole in ("?", ":"):
            chooses = True
        elif whole in ",;{}=":
            if chooses or whole != "," or not stack[-1].name:
                end(stack[-1])
            chooses, word = False, ""
        elif re.match(r"[A-Za-z_]", whole):
            word = whole
    return found


def _is_cpp_message(file: str, names: list[str], pieces: tuple[str, ...]) -> bool:
    if CPP_SILENT.intersection(names) or CPP_LISTS.match(file):
        return False
    if any(CPP_SAYING.fullmatch(name) for name in names):
        return sum(map(_words, pieces)) > 0
    return _is_text(pieces) or any(_words(piece) >= WORDS - 1 for piece in pieces)


def _unescape(literal: str) -> str:
    return literal.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
