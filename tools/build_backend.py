"""The build backend: scikit-build-core, with the installed PyTorch.

A build for one version of PyTorch runs in no other. So recoup is built with the PyTorch of the
environment that it is installed into, even if pip isolates the build. Only if there is none, the
build requests one, as an installation of recoup would: any version in the range.

Runs as many compilers at a time as the machine has cores and memory for, unless
CMAKE_BUILD_PARALLEL_LEVEL sets the number.
"""

import os
import subprocess
import sys
from pathlib import Path

from parallel_jobs import jobs
from scikit_build_core import build as _build
from scikit_build_core.build import (  # noqa: F401
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_wheel,
)

os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(jobs()))

_FIND = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def has_torch() -> bool:
    """Whether the target environment has PyTorch, which pip's build isolation hides without -E."""
    return subprocess.run([sys.executable, "-E", "-c", _FIND], check=False).returncode == 0


def torch_range() -> str:
    """The allowed versions of PyTorch, from pyproject.toml."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # a dependency of scikit-build-core
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    dependencies: list[str] = tomllib.loads(text)["project"]["dependencies"]
    return next(name for name in dependencies if name.startswith("torch"))


def get_requires_for_build_wheel(config_settings=None):  # type: ignore[no-untyped-def]
    return [*_build.get_requires_for_build_wheel(config_settings), *_torch()]


def get_requires_for_build_editable(config_settings=None):  # type: ignore[no-untyped-def]
    return [*_build.get_requires_for_build_editable(config_settings), *_torch()]


def build_editable(*args, **settings):  # type: ignore[no-untyped-def]
    return _build.build_editable(*args, **settings)


def _torch() -> list[str]:
    return [] if has_torch() else [torch_range()]
