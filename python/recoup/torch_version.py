"""Whether the module that was built can be loaded into the PyTorch that is there."""

import importlib
import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

import torch

from recoup._build import TORCH_VERSION


def require(found: str) -> None:
    """Raises ImportError when `found` is another PyTorch than the one that recoup was built for.

    To be called before the module is loaded: that would end in a missing symbol, or worse. Releases
    of one minor version have the same headers and symbols.
    """
    if minor(found) != minor(TORCH_VERSION):
        raise ImportError(_sentence(found))


def load() -> None:
    """Loads the module. Where PyTorch lacks a symbol of its, the error is that of `require`."""
    try:
        importlib.import_module("recoup._C")
    except ImportError as error:
        if "undefined symbol" not in str(error):
            raise
        raise ImportError(_sentence(torch.__version__)) from error


def minor(version: str) -> str:
    """2.14 of 2.14.1+cu130."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def _sentence(found: str) -> str:
    return (
        f"recoup was built for PyTorch {minor(TORCH_VERSION)}, and this is PyTorch {found}: "
        f"{_remedy()}"
    )


def _remedy() -> str:
    """The command that mends it, by how this recoup was installed."""
    folder, editable = _source()
    if folder is None:
        return f'run pip install "torch=={minor(TORCH_VERSION)}.*", or install the recoup for yours'
    place = f"-e {shlex.quote(folder)}" if editable else shlex.quote(folder)
    return f"build it again, with pip install --force-reinstall --no-deps {place}"


def _source() -> tuple[str | None, bool]:
    """The folder that recoup was installed from, if it is there, and whether that is editable."""
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
