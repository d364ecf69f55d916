"""The names that recoup wraps are those that PyTorch has, wherever PyTorch has them."""

import sys
import types
from pathlib import Path

import pytest
import torch
from packaging.version import Version

from patched import OF_SCOPES, rows_of_scopes, tables
from recoup._patching import graphs, module_names
from recoup._patching.late_patches import LatePatches
from recoup._patching.patches import Patches, Replacement
from recoup._verify import state as verify_state
from torch_versions import RUNNING

TABLES = tables()
STUB = Path(torch._C.__file__).parent / "_C" / "__init__.pyi"


def is_newer(row: Replacement) -> bool:
    return row.since != "" and Version(row.since) > RUNNING


def test_names_of_newer_versions_do_not_exist_yet() -> None:
    assert not [
        row.name for row in rows_of_scopes() if is_newer(row) and hasattr(row.owner, row.name)
    ]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_every_name_exists(table: Patches | LatePatches) -> None:
    missing = [
        f"{row.owner.__name__}.{row.name}"
        for row in table.replacements
        if not row.optional and not is_newer(row) and not hasattr(row.owner, row.name)
    ]
    assert not missing, f"PyTorch has another name for it, or it is optional: {missing}"


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_optional_names_exist_in_the_stub(table: Patches | LatePatches) -> None:
    """The stub lists names that only other builds have."""
    stub = STUB.read_text(encoding="utf-8")
    for row in table.replacements:
        if row.optional and not hasattr(row.owner, row.name):
            assert row.owner is torch._C and f"def {row.name}(" in stub, row.name


def test_every_table_is_used() -> None:
    assert {id(table) for table in TABLES.values()} == {
        id(table)
        for table in (*OF_SCOPES, graphs.RESETS, module_names.PATCHES, verify_state.PATCHES)
    }


def test_a_function_is_wrapped_under_all_its_names() -> None:
    """A `from torch import from_numpy` within PyTorch makes another name of the function."""
    wrapped = {(id(row.owner), row.name) for row in rows_of_scopes()}
    originals = {
        id(original): original
        for row in rows_of_scopes()
        if isinstance(row.owner, types.ModuleType)
        and callable(original := getattr(row.owner, row.name))
    }
    modules = {
        name: module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "torch" and isinstance(module, types.ModuleType)
    }
    bare = [
        f"{name}.{attribute}"
        for name, module in modules.items()
        for attribute, value in list(vars(module).items())
        if id(value) in originals and (id(module), attribute) not in wrapped
    ]
    assert not bare
    assert len(modules) > 500 and len(originals) > 10
