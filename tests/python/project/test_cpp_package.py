"""find_package(recoup) in an installed wheel and in an installation by `cmake --install`."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import recoup
from recoup._build import TORCH_VERSION
from recoup.torch_version import minor

ROOT = Path(__file__).parents[3]
TORCH = Path(torch.__file__).parent
PACKAGE = Path(recoup.cmake_prefix_path)
BUILT = minor(TORCH_VERSION)

# Builds in seconds, because it does not include PyTorch's headers.
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(sizes LANGUAGES CXX)
find_package(recoup 0.1 REQUIRED)
add_executable(sizes sizes.cpp)
target_link_libraries(sizes PRIVATE recoup::offline)
"""
# Linking recoup::offline suffices for all headers, and for a main that does not call PyTorch.
HEADERS = sorted(
    path.relative_to(ROOT / "include").as_posix() for path in (ROOT / "include").rglob("*.h")
)
PROGRAM = """
#include <iostream>
{headers}
int main() {{
  std::cout << recoup::to_string(recoup::Bytes(1536)) << std::endl;
  return recoup::planners().empty();
}}
""".format(headers="\n".join(f"#include <{name}>" for name in HEADERS if name != "recoup/torch.h"))

# Compiles nothing: shows the result of find_package.
ASKS = """
cmake_minimum_required(VERSION 3.22)
project(asks LANGUAGES NONE)
find_package(recoup {request})
message(STATUS "found: ${{recoup_FOUND}} ${{recoup_VERSION}} ${{recoup_NOT_FOUND_MESSAGE}}")
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_folder() -> Path:
    """The build folder of the tested recoup: that of `make build`, or of tools/test_torch.sh."""
    device = os.environ.get("RECOUP_TEST_DEVICE")
    return Path(device).parents[3] if device else ROOT / "build/python"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", build_folder(), "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed wheel, with PyTorch in the same folder."""
    folder = tmp_path_factory.mktemp("wheel")
    make = "import sys; sys.path.insert(0, 'tools'); import build_backend as b; b.build_wheel"
    run(sys.executable, "-c", f"{make}({str(folder)!r}, {{'build-dir': {str(build_folder())!r}}})")
    (wheel,) = folder.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    (folder / "site/torch").symlink_to(TORCH)
    return folder / "site"


def build_and_run(folder: Path, *options: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "CMakeLists.txt").write_text(PROJECT)
    (folder / "sizes.cpp").write_text(PROGRAM)
    run("cmake", "-S", folder, "-B", folder / "build", *options)
    run("cmake", "--build", folder / "build")
    return run(folder / "build/sizes")


def asked(folder: Path, request: str, **options: object) -> str:
    """The output of CMake for a request to find_package, on one line."""
    (folder / "CMakeLists.txt").write_text(ASKS.format(request=request))
    options = {"recoup_DIR": PACKAGE, **options}
    definitions = [f"-D{name}={value}" for name, value in options.items()]
    command = ["cmake", "-S", folder, "-B", folder / "build", *definitions]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode != 0) == ("CMake Error" in done.stderr)
    return " ".join((done.stdout + done.stderr).split())


def made_up_torch(folder: Path, version: str) -> Path:
    parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)
    header = folder / "include/torch/headeronly/version.h"
    header.parent.mkdir(parents=True)
    header.write_text("".join(f"#define TORCH_VERSION_{name} {part}\n" for name, part in parts))
    for name in ("torch_cpu", "c10"):
        library = folder / f"lib/lib{name}.so"
        library.parent.mkdir(exist_ok=True)
        library.touch()
    return folder


# ---- programs ----


def test_the_documented_commands_build_and_run_the_example(tmp_path: Path) -> None:
    text = (ROOT / "docs/reference.md").read_text("utf-8").partition("## From C++")[2]
    (commands,) = re.findall(r"```bash\n(.*?)```", text, re.S)
    (cmake,) = re.findall(r"```cmake\n(.*?)```", text, re.S)
    assert cmake in (ROOT / "examples/CMakeLists.txt").read_text("utf-8")
    commands = commands.replace(".venv/bin/python", sys.executable)
    commands = commands.replace("build/examples", str(tmp_path / "build"))
    assert "bits equal" in run("sh", "-ec", commands)


def test_a_wheel_finds_the_pytorch_in_its_folder(site: Path, tmp_path: Path) -> None:
    # As scikit-build-core sets it.
    said = build_and_run(tmp_path, f"-DCMAKE_PREFIX_PATH={site}", "-DPython_EXECUTABLE=/none")
    assert said == "1,536 bytes (1.5 KiB)\n"


def test_an_installed_build_finds_the_pytorch_of_python(prefix: Path, tmp_path: Path) -> None:
    said = build_and_run(
        tmp_path,
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DPython_EXECUTABLE={sys.executable}",
        # Ubuntu's compiler sets this: a library without calls by the program itself is not loaded.
        "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed",
    )
    assert said == "1,536 bytes (1.5 KiB)\n"


def test_an_installed_build_has_no_python_files(prefix: Path) -> None:
    assert {path.name for path in prefix.iterdir()} == {"include", "lib"}
    found = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if path.is_file()}
    assert {"lib/librecoup_torch.so", "lib/librecoup_offline.so"} <= found
    assert "lib/cmake/recoup/recoup-config.cmake" in found


# ---- results of find_package ----


def test_a_folder_of_pytorch_can_be_given(tmp_path: Path) -> None:
    other = made_up_torch(tmp_path / "torch", f"{BUILT}.99")
    said = asked(tmp_path, "0.1", RECOUP_TORCH_ROOT=other)
    assert f"found: 1 {recoup.__version__}" in said


def test_another_minor_version_of_pytorch_is_refused(tmp_path: Path) -> None:
    other = made_up_torch(tmp_path / "torch", "9.9.1")
    sentence = (
        f"recoup was built for PyTorch {BUILT}, and {other} is PyTorch 9.9.1: "
        f'run pip install "torch=={BUILT}.*", set RECOUP_TORCH_ROOT to another, '
        "or install the recoup for this one"
    )
    said = asked(tmp_path, "QUIET", RECOUP_TORCH_ROOT=other)
    assert f"found: 0 {recoup.__version__} {sentence}" in said
    assert "CMake Warning" not in said
    said = asked(tmp_path, "REQUIRED", RECOUP_TORCH_ROOT=other)
    assert "CMake Error" in said
    assert sentence in said


def test_a_missing_pytorch_is_reported(prefix: Path, tmp_path: Path) -> None:
    said = asked(tmp_path, "QUIET", RECOUP_TORCH_ROOT=tmp_path)
    assert f"there is no PyTorch in RECOUP_TORCH_ROOT, {tmp_path}: set RECOUP_TORCH_ROOT to" in said
    shutil.rmtree(tmp_path / "build")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: no site-packages
    python.chmod(0o755)
    config = prefix / "lib/cmake/recoup"
    said = asked(tmp_path, "QUIET", recoup_DIR=config, Python_EXECUTABLE=python)
    assert f"there is no PyTorch next to {prefix} or in the Python {python}: set " in said


@pytest.mark.parametrize("version", ["0.2", "0.0.9", "1.0", "0.1.9"])
def test_another_version_of_recoup_is_refused(tmp_path: Path, version: str) -> None:
    said = asked(tmp_path, f"{version} REQUIRED")
    assert "CMake Error" in said
    assert f'compatible with requested version "{version}"' in said


def test_a_request_for_components_is_refused(tmp_path: Path) -> None:
    assert "it has no core" in asked(tmp_path, "0.1 QUIET COMPONENTS core")
    assert "found: 1" in asked(tmp_path, "0.1 QUIET OPTIONAL_COMPONENTS core")


# ---- files ----


def test_the_package_can_be_moved(site: Path) -> None:
    package = site / "recoup"
    configs = list((package / "lib/cmake/recoup").iterdir())
    assert len(configs) == 3
    for path in configs:
        text = path.read_text("utf-8")
        assert not [place for place in (ROOT, TORCH, site, "/tmp/") if str(place) in text]
    libraries = [*package.rglob("*.so")]
    assert len(libraries) == 4
    for path in libraries:
        (places,) = re.findall(r"\(RUNPATH\).*\[(.*)\]", run("readelf", "-d", path))
        assert all(place.startswith("$ORIGIN") for place in places.split(":"))
