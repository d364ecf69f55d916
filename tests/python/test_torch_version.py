"""recoup says in words that it was built for another PyTorch."""

import subprocess
import sys

import pytest
import torch

from recoup import torch_version
from recoup._build import TORCH_VERSION


def test_the_version_of_the_build_is_that_of_the_tests() -> None:
    assert torch.__version__.partition("+")[0] == TORCH_VERSION
    torch_version.require(f"{TORCH_VERSION}+cu130")


@pytest.mark.parametrize("version", ["9.9.0", "2.12.1+cpu"])
def test_another_one_is_refused_before_the_module_is_loaded(version: str) -> None:
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
    assert f"built for PyTorch {TORCH_VERSION}" in said and f"is PyTorch {version}" in said
    assert f"torch=={TORCH_VERSION}" in said
