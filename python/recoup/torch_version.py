"""Checks that the built module can be loaded into the installed PyTorch."""

import importlib
import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from urllib.parse import unquote, urlparse

import torch

from recoup._build import TORCH_VERSION


def require(found: str) -> None:
    """Raises ImportError if `found` is not a version of PyTorch that recoup was built for.

    Call it before the module is loaded, which would otherwise fail with a missing symbol or behave
    wrongly. All releases of one minor version have the same headers and symbols.
    """
    if minor(found) != minor(TORCH_VERSION):
        raise ImportError(_sentence(found))


def load() -> None:
    """Loads the module. If PyTorch lacks one of its symbols, raises the error of `require`."""
    try:
        importlib.import_module("recoup._C")
    except ImportError as error:
        if "undefined symbol" not in str(error):
            raise
        raise ImportError(_sentence(torch.__version__)) from error


def minor(version: str) -> str:
    """'2.14' of '2.14.1+cu130'."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def _sentence(found: str) -> str:
    return (
        f"recoup was built for PyTorch {minor(TORCH_VERSION)}, but PyTorch {found} is installed: "
        f"{_remedy(found)}"
    )


def _remedy(found: str) -> str:
    """The command that fixes a version mismatch, for the way in which recoup was installed."""
    folder, editable = _source()
    if folder is None:
        torch_built_for = f"torch=={minor(TORCH_VERSION)}.*"
        return f'run pip install "{torch_built_for}", or install the wheel {_wheel(found)}'
    place = f"-e {shlex.quote(folder)}" if editable else shlex.quote(folder)
    return f"rebuild recoup with pip install --force-reinstall --no-deps {place}"


def _wheel(found: str) -> str:
    """The start of the name of the wheel for a version of PyTorch and this Python."""
    release = version("recoup").partition("+")[0]
    return f"recoup-{release}+torch{minor(found)}-cp{sys.version_info[0]}{sys.version_info[1]}"


def _source() -> tuple[str | None, bool]:
    """The source folder of the installation, None if it is gone, and whether it is editable."""
    try:
        text = distribution("recoup").read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    origin = json.loads(text) if text else {}
    folder = unquote(urlparse(origin.get("url", "")).path) if "dir_info" in origin else ""
    if not folder or not Path(folder, "pyproject.toml").is_file():
        return None, False
    return folder, bool(origin["dir_info"].get("editable"))


require(torch.__version__)
load()
