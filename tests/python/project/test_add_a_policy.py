"""Follows docs/maintainers/add-a-policy.md to the letter, on a copy of a part of the tree."""

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import warm_python

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "maintainers" / "add-a-policy.md"

# The build files find sources by folder, so the copy builds only the copied sources.
COPIED = (
    "CMakeLists.txt",
    "CMakePresets.json",
    "cmake",
    "csrc/CMakeLists.txt",
    "csrc/base",
    "csrc/offline/dtr",  # a target of its own, which needs a source
    "csrc/policy",
    "include",
    "tests/CMakeLists.txt",
    "tests/core/support/seeds.h",
)
COPIED_TESTS = "tests/core/policy/policy_*"

BLOCK = re.compile(r"^```(?P<language>\w+) ?(?P<file>\S*)\n(?P<text>.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    language: str
    file: str
    text: str


def blocks() -> list[Block]:
    return [Block(**match.groupdict()) for match in BLOCK.finditer(PAGE.read_text("utf-8"))]


def copy_tree(target: Path) -> None:
    for name in (*COPIED, *(str(path.relative_to(ROOT)) for path in ROOT.glob(COPIED_TESTS))):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name)
        else:
            shutil.copy(ROOT / name, target / name)


def run(command: list[str], folder: Path, stdin: str = "") -> str:
    environment = {
        **os.environ,
        "PATH": f"{Path(warm_python.REAL).parent}{os.pathsep}{os.environ['PATH']}",
        # A repository around the copy may be another project: git must use the copy's own paths.
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
    }
    result = subprocess.run(
        command,
        cwd=folder,
        input=stdin,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{command}:\n{result.stdout}"
    return result.stdout


def follow(block: Block, tree: Path) -> str:
    if block.language == "bash":
        return run(["bash", "-euo", "pipefail", "-c", block.text], tree)
    if block.language == "diff":
        return run(["git", "apply", "-"], tree, stdin=block.text)
    assert not (tree / block.file).exists(), f"{block.file} is there already"
    (tree / block.file).write_text(block.text, encoding="utf-8")
    return ""


def test_every_block_names_its_file_and_there_are_at_most_two() -> None:
    files = [block.file for block in blocks() if block.language != "bash"]
    assert all(files)
    assert 1 <= len(set(files)) <= 2
    patched = [block for block in blocks() if block.language == "diff"]
    assert all(f"+++ b/{block.file}\n" in block.text for block in patched)
    assert Counter(block.language for block in blocks()) == {"cpp": 1, "diff": 1, "bash": 1}


def test_the_steps_of_the_page_add_a_policy_that_passes_the_contract_suite(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    output = [follow(block, tmp_path) for block in blocks()][-1]
    suites = set(re.findall(r"\[       OK \] \w+/(\w+)\.\w+/cheapest_filter_sampling", output))
    assert suites == {"PolicyContract", "ScorePolicyContract"}, output
    assert "[       OK ] PolicyScores.AgreeWithBruteForce" in output
