"""tools/check_layers.py on made-up trees: the trees that it accepts and the violations it names."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKER = Path(__file__).parents[3] / "tools" / "check_layers.py"

GOOD_TREE = {
    "include/recoup/types.h": "#include <cstdint>\n",
    "include/recoup/torch.h": '#include <ATen/ATen.h>\n#include "recoup/types.h"\n',
    "csrc/base/check.h": '#include "recoup/types.h"\n',
    "csrc/pool/free_index.h": "#pragma once\n",
    "csrc/pool/pool.h": '#include "free_index.h"\n#include "csrc/base/check.h"\n',
    "csrc/engine/program/engine.cpp": (
        '// #include "csrc/torch/calls/handler.h"\n#include "csrc/pool/pool.h"\n'
    ),
    "include/recoup/offline/order.h": '#include "recoup/types.h"\n',
    "csrc/offline/order/order.cpp": '#include "recoup/offline/order.h"\n',
    "csrc/offline/python/order.cpp": '#include <Python.h>\n#include "csrc/python/module.h"\n',
    "csrc/torch/calls/handler.cpp": '#include <c10/core/Storage.h>\n#include "recoup/torch.h"\n',
    "csrc/python/module.cpp": '#include <Python.h>\n#include "csrc/engine/program/engine.h"\n',
    "tests/core/base/pool_test.cpp": '#include <gtest/gtest.h>\n#include "csrc/pool/pool.h"\n',
    "python/recoup/__init__.py": "from recoup.run import Run\n",
    "python/recoup/__main__.py": "from recoup.commands import cli\n",
    "python/recoup/run.py": (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from recoup.offline.traces import Trace\n"
        "def read():\n    from recoup.commands import cli\n"
    ),
    "python/recoup/offline/traces.py": "import recoup\nfrom ..run import Run\n",
    "python/recoup/bench/trial.py": "from recoup.bench.nets import net\n",
    "python/recoup/bench/nets/net.py": "import torch\nfrom recoup.bench.nets import vision\n",
    "python/recoup/commands/cli.py": "from recoup import offline\nfrom recoup.bench import trial\n",
}


def check(root: Path, tree: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(CHECKER), str(root)], capture_output=True, text=True, check=False
    )


def test_good_tree_passes(tmp_path: Path) -> None:
    result = check(tmp_path, GOOD_TREE)
    assert (result.returncode, result.stdout) == (
        0,
        f"check_layers: {len(GOOD_TREE)} files, 0 against the layer order\n",
    )


@pytest.mark.parametrize(
    ("file", "include", "named"),
    [
        ("csrc/pool/bad.h", '"csrc/engine/program/engine.h"', "csrc/engine"),
        ("csrc/pool/bad.h", '"../engine/program/engine.cpp"', "csrc/engine"),
        ("include/recoup/bad.h", '"csrc/base/check.h"', "csrc/base"),
        ("csrc/torch/calls/bad.h", '"csrc/python/module.h"', "csrc/python"),
        ("csrc/torch/calls/bad.h", '"csrc/offline/layout/layout.h"', "csrc/offline/layout"),
        ("csrc/python/bad.h", '"recoup/offline/order.h"', "include/recoup/offline"),
        ("csrc/simulator/bad.h", '"csrc/offline/dtr/state.h"', "csrc/offline/dtr"),
        ("include/recoup/bad.h", '"recoup/offline/order.h"', "include/recoup/offline"),
        ("csrc/offline/order/bad.h", '"csrc/torch/calls/handler.h"', "csrc/torch"),
        ("csrc/engine/base/bad.cpp", "<ATen/ATen.h>", "ATen/ATen.h"),
        ("csrc/engine/base/bad.cpp", '"recoup/torch.h"', "include/recoup/torch.h"),
        ("csrc/base/bad.cpp", "<c10/util/Exception.h>", "c10/util/Exception.h"),
        ("csrc/base/bad.cpp", "<torch/torch.h>", "torch/torch.h"),
        ("csrc/base/bad.cpp", "<Python.h>", "Python.h"),
        ("include/recoup/bad.h", "<recoup/torch.h>", "include/recoup/torch.h"),
        ("tests/core/bad_test.cpp", "<torch/library.h>", "torch/library.h"),
        ("tests/core/bad_test.cpp", '"csrc/torch/calls/handler.h"', "csrc/torch"),
        ("csrc/base/bad.cpp", '"csrc/elsewhere/thing.h"', "csrc/elsewhere/thing.h"),
    ],
)
def test_bad_include_fails_and_is_named(
    tmp_path: Path, file: str, include: str, named: str
) -> None:
    result = check(tmp_path, {**GOOD_TREE, file: f"#pragma once\n\n#  include {include}\n"})
    assert result.returncode == 1
    first, last = result.stdout.splitlines()
    assert first.startswith(f"{file}:3: ")
    assert named in first
    assert last.endswith("1 against the layer order")


@pytest.mark.parametrize(
    ("file", "statement", "named"),
    [
        ("bad.py", "import recoup.offline.traces", "recoup.offline"),
        ("bad.py", "from recoup import offline", "recoup.offline"),
        ("bad.py", "from recoup.commands.cli import main", "recoup.commands"),
        ("bad.py", "from .bench import trial", "recoup.bench"),
        ("bad.py", "from . import bench", "recoup.bench"),
        ("bad.py", "def f(): from recoup.offline import traces", "recoup.offline"),
        ("__init__.py", "if torch:  from recoup.offline import traces", "recoup.offline"),
        ("offline/bad.py", "from recoup.commands import tables", "recoup.commands"),
        ("offline/bad.py", "from ..bench import trial", "recoup.bench"),
        ("bench/bad.py", "class A: from ..commands import tables", "recoup.commands"),
        ("bench/nets/bad.py", "import recoup", "recoup, below"),
        ("bench/nets/bad.py", "from recoup.bench.trial import train", "recoup.bench, below"),
        ("bad.py", "if not TYPE_CHECKING: import recoup.offline", "recoup.offline"),
    ],
)
def test_bad_import_fails_and_is_named(
    tmp_path: Path, file: str, statement: str, named: str
) -> None:
    file = f"python/recoup/{file}"
    result = check(tmp_path, {**GOOD_TREE, file: f'"""Bad."""\n\n{statement}\n'})
    assert result.returncode == 1
    first, last = result.stdout.splitlines()
    assert first.startswith(f"{file}:3: ")
    assert f"may not load {named}" in first
    assert last.endswith("1 against the layer order")


def test_folder_outside_the_order_fails(tmp_path: Path) -> None:
    result = check(tmp_path, {**GOOD_TREE, "csrc/misc/thing.h": "#pragma once\n"})
    assert result.returncode == 1
    assert result.stdout.startswith("csrc/misc/thing.h:1: ")
    result = check(tmp_path / "python", {**GOOD_TREE, "python/recoup/misc/thing.py": ""})
    assert result.returncode == 1
    assert result.stdout.startswith("python/recoup/misc/thing.py:1: ")


def test_empty_tree_is_an_error_and_not_a_pass(tmp_path: Path) -> None:
    result = check(tmp_path, {})
    assert result.returncode == 2
    assert "no C++ sources" in result.stderr


def test_this_tree_is_in_order() -> None:
    result = subprocess.run(
        [sys.executable, str(CHECKER)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


def test_a_cycle_of_includes_in_a_folder_is_named(tmp_path: Path) -> None:
    tree = GOOD_TREE | {
        "csrc/engine/replay/room.h": '#include "csrc/engine/replay/values.h"\n',
        "csrc/engine/replay/replay.h": '#include "csrc/engine/replay/room.h"\n',
        # Only its source closes the cycle.
        "csrc/engine/replay/values.h": "#pragma once\n",
        "csrc/engine/replay/values.cpp": (
            '#include "values.h"\n#include "csrc/engine/replay/replay.h"\n'
        ),
    }
    result = check(tmp_path, tree)
    assert result.returncode == 1
    assert "csrc/engine/replay: files include one another in a circle: " in result.stdout
    assert "room" in result.stdout and "replay" in result.stdout


def test_a_crowded_folder_is_named(tmp_path: Path) -> None:
    files = {f"csrc/pool/part{number}.h": "#pragma once\n" for number in range(24)}
    assert check(tmp_path, GOOD_TREE | files).returncode == 1
    del files["csrc/pool/part0.h"]  # with two files of the good tree, 25 remain
    result = check(tmp_path / "fewer", GOOD_TREE | files)
    assert result.returncode == 0, result.stdout


def test_folders_of_a_layer_are_in_order(tmp_path: Path) -> None:
    above = {"csrc/engine/state/bad.h": '#include "csrc/engine/program/engine.h"\n'}
    result = check(tmp_path, GOOD_TREE | above)
    assert result.returncode == 1
    assert "csrc/engine/state may not include csrc/engine/program" in result.stdout
