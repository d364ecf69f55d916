"""Whether the fields of a class are documented."""

import ast
import inspect
import itertools
from typing import Any


def bare_fields(cls: type[Any]) -> list[str]:
    """The fields of a class without a docstring after them."""
    tree = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(tree, ast.ClassDef)
    return [
        ast.unparse(field.target)
        for field, after in itertools.pairwise([*tree.body, ast.Pass()])
        if isinstance(field, ast.AnnAssign)
        and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    ]
