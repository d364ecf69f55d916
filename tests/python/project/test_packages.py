"""The results of `make wheels`, except for compiled files."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from recoup import _C

ROOT = Path(__file__).parents[3]
METADATA = """
import os, sys
sys.path.insert(0, "tools")
import build_backend
build_backend.prepare_metadata_for_build_wheel(sys.argv[1])
"""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "tools/sdist.py", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (made,) = folder.iterdir()
    return made


def test_the_sdist_is_small(sdist: Path) -> None:
    assert sdist.stat().st_size < 1_100_000


def needed() -> Iterator[str]:
    """All files that a build reads."""
    yield from ("CMakeLists.txt", "pyproject.toml", "LICENSE", "README.md")
    yield from (f"tools/{name}.py" for name in ("build_backend", "parallel_jobs", "wheel_version"))
    for folder in ("include", "csrc", "cmake", "python"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix not in (".pyc", ".so") and path.is_file():
                yield str(path.relative_to(ROOT))


def test_the_sdist_has_all_files_that_a_build_reads(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert not set(needed()) - found


def test_an_index_accepts_the_sdist(sdist: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(sdist)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    with tarfile.open(sdist) as archive:
        file = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert file is not None
        lines = file.read().decode().splitlines()
    assert f"Version: {_C.__version__}" in lines
    assert "License-File: LICENSE" in lines
    assert "# recoup" in lines  # the long description


def metadata(folder: Path, torch: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", METADATA, str(folder)],
        cwd=ROOT,
        env=os.environ | {"RECOUP_WHEEL_TORCH": torch},
        capture_output=True,
        text=True,
    )


def test_a_wheel_requires_its_pytorch(tmp_path: Path) -> None:
    assert metadata(tmp_path, "2.14").returncode == 0
    (folder,) = tmp_path.iterdir()
    wheel = PathDistribution(folder)
    assert wheel.version == f"{_C.__version__}+torch2.14"
    assert "torch==2.14.*" in (wheel.requires or [])


@pytest.mark.parametrize("torch", ["2.14.1", "2", "new"])
def test_an_invalid_minor_version_is_refused(tmp_path: Path, torch: str) -> None:
    done = metadata(tmp_path, torch)
    assert done.returncode != 0
    assert f"must be a minor version as 2.14, not '{torch}'" in done.stderr
