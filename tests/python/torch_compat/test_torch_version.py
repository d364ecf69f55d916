"""recoup refuses another PyTorch than it was built for, with a clear error."""

import importlib
import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch

from recoup import torch_version
from recoup._build import TORCH_VERSION

BUILT = torch_version.minor(TORCH_VERSION)


def test_the_version_of_the_build_is_the_installed_one() -> None:
    assert torch_version.minor(torch.__version__) == BUILT
    torch_version.require(f"{TORCH_VERSION}+cu130")
    torch_version.require(f"{BUILT}.99")


@pytest.mark.parametrize("version", ["9.9.0", "2.10.0+cpu"])
def test_another_version_is_refused_before_the_module_is_loaded(version: str) -> None:
    code = f"""
import sys, torch
torch.__version__ = {version!r}
try:
    import recoup
except ImportError as error:
    print(error)
assert "recoup._C" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = done.stdout.strip()
    assert "\n" not in said
    assert f"built for PyTorch {BUILT}," in said and f"PyTorch {version} is installed:" in said
    assert "pip install " in said


def installed_from(monkeypatch: pytest.MonkeyPatch, origin: object) -> str:
    """The error's text, with `origin` as pip's record of the installation."""
    text = None if origin is None else json.dumps(origin)
    package = SimpleNamespace(read_text=lambda name: text)
    monkeypatch.setattr(torch_version, "distribution", lambda name: package)
    with pytest.raises(ImportError) as error:
        torch_version.require("9.9.0")
    return str(error.value)


def test_the_error_has_the_command_for_this_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "the sources"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    again = "pip install --force-reinstall --no-deps "
    url = folder.as_uri()
    said = installed_from(monkeypatch, {"url": url, "dir_info": {"editable": True}})
    assert said.endswith(f"{again}-e '{folder}'")
    said = installed_from(monkeypatch, {"url": url, "dir_info": {}})
    assert said.endswith(f"{again}'{folder}'")
    torch_again = f'pip install "torch=={BUILT}.*"'
    said = installed_from(monkeypatch, None)
    # The name of a file that `make wheels` makes.
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert torch_again in said
    release = version("recoup").partition("+")[0]
    assert said.endswith(f"or install the wheel recoup-{release}+torch9.9-{tag}")
    wheel = {"url": "file:///recoup.whl", "archive_info": {}}
    assert torch_again in installed_from(monkeypatch, wheel)
    shutil.rmtree(folder)
    assert torch_again in installed_from(monkeypatch, {"url": url, "dir_info": {}})


def test_a_missing_symbol_gives_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> None:
        def load(name: str) -> NoReturn:
            raise ImportError(text)

        monkeypatch.setattr(importlib, "import_module", load)

    fail("librecoup_torch.so: undefined symbol: _ZN3c105Error")
    with pytest.raises(ImportError, match=f"built for PyTorch {BUILT}, but PyTorch") as error:
        torch_version.load()
    assert "_ZN3c105Error" in str(error.value.__cause__)
    fail("libstdc++.so.6: version `GLIBCXX_3.4.99' not found")
    with pytest.raises(ImportError, match="GLIBCXX"):
        torch_version.load()
