"""All warnings of the package have one category, which a user can filter."""

import ast
from collections.abc import Iterator
from pathlib import Path

import recoup

PACKAGE = Path(recoup.__file__).parent


def categories() -> Iterator[tuple[str, str]]:
    """The place of each call of `warnings.warn`, and its category as written."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("warnings.warn", "warn"):
                named = {each.arg: each.value for each in node.keywords}
                category = named.get("category") or (node.args[1:2] or [None])[0]
                where = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                yield where, "" if category is None else ast.unparse(category)


def test_each_warning_has_the_category_of_recoup() -> None:
    found = dict(categories())
    assert found, "the search finds none"
    assert {where: kind for where, kind in found.items() if kind != "RecoupWarning"} == {}


def test_the_category_is_a_user_warning() -> None:
    assert issubclass(recoup.RecoupWarning, UserWarning)
