"""The first parallel call of a math function has the bits of all later calls."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recoup import _C

LIBRARY = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
OTHER_NAMES = {"ln": "log"}  # of oneMKL's functions

CHILDREN = """
import os, sys
import torch
import recoup

names = sys.argv[2:]
torch.set_num_threads(1)  # a forked child cannot use the parent's threads
generator = torch.Generator().manual_seed(1)
inputs = [
    torch.rand(1 << 16, generator=generator, dtype=dtype) * 0.9 + 0.05
    for dtype in (torch.float32, torch.float64)
]
for child in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(2)
        function = getattr(torch, names[child % len(names)])
        os._exit(any(not torch.equal(function(x), function(x)) for x in inputs))
    if os.waitpid(pid, 0)[1]:
        print(names[child % len(names)])
"""


def names_of_onemkl() -> set[str]:
    """The names in PyTorch of the vector-math functions of oneMKL that PyTorch links."""
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(LIBRARY)], capture_output=True, text=True, check=True
    ).stdout
    found = {name.lower() for name in re.findall(r" T vm[sd]([A-Z][a-zA-Z0-9]*)$", symbols, re.M)}
    return {OTHER_NAMES.get(name, name) for name in found}


needs_onemkl = pytest.mark.skipif(
    not torch.backends.mkl.is_available() or shutil.which("nm") is None,
    reason="PyTorch without oneMKL, or no nm",
)


@needs_onemkl
def test_each_math_function_of_onemkl_is_called() -> None:
    called = {re.sub(r"aten::|\..*", "", name) for name in _C.choose_math_kernels()}
    linked = names_of_onemkl()
    assert len(linked) >= 16, linked
    assert linked <= called


@needs_onemkl
def test_first_calls_equal_second_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN, "64", *sorted(names_of_onemkl())],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_calls_draw_no_random_numbers() -> None:
    code = (
        "import torch; before = torch.get_rng_state(); threads = torch.get_num_threads()\n"
        "import recoup\n"
        "assert torch.equal(before, torch.get_rng_state())\n"
        "assert threads == torch.get_num_threads()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_import_in_a_mode_calls_no_program() -> None:
    code = (
        "import torch\n"
        "from torch.utils._python_dispatch import TorchDispatchMode\n"
        "class Count(TorchDispatchMode):\n"
        "    calls = []\n"
        "    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n"
        "        self.calls.append(str(func)); return func(*args, **(kwargs or {}))\n"
        "with Count():\n"
        "    import recoup\n"
        "assert 'aten.tanh.default' not in Count.calls, Count.calls"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
