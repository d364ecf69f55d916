"""Programs and suites with a malloc that overwrites freed memory, to detect uses after free."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OVERWRITTEN = {"MALLOC_PERTURB_": "165", "PYTHONMALLOC": "malloc"}

# Libraries are made and destroyed; a new op gets the address of the last one.
LIBRARIES = """
import torch
import recoup

for i in range(60):
    library = torch.library.Library("recoup_gone", "FRAGMENT")
    # One that writes its argument and one that does not, in turn.
    if i % 2:
        library.define(f"op{i}(Tensor x) -> Tensor")
        library.impl(f"op{i}", lambda x: x + 1, "CPU")
    else:
        library.define(f"op{i}(Tensor(a!) x) -> ()")
        library.impl(f"op{i}", lambda x: (x.add_(1), None)[1], "CPU")
    with recoup.budget("8MiB", options=recoup.Options(small_result_bytes=0)):
        x = torch.zeros(100).mul(2)
        result = getattr(torch.ops.recoup_gone, f"op{i}")(x)
        recoup.evict(x)
        assert float(x.sum()) == (0 if i % 2 else 100), i
        if i % 2:
            assert float(result.sum()) == 100, i
    del result, x
    library._destroy()
with recoup.budget("8MiB"):
    torch.ones(10).add(1)
recoup.allow_replay("recoup_gone::op0")
print("done")
"""

STORAGES = """
import torch
import recoup

with recoup.budget("8MiB", options=recoup.Options(small_result_bytes=0)) as run:
    for i in range(50):
        x = torch.full((1000,), float(i)).mul(2)
        y = torch.full((500 + i,), float(i)).mul(3)
        x.set_(y)  # the storage that x had dies in the kernel
        assert float(x.sum()) == 3.0 * i * (500 + i)
        z = torch.full((100,), 1.0)
        z.set_(y.untyped_storage(), 1, (10,), (2,))
        recoup.evict(y)
        assert float(z.add(x[:10]).sum()) == 60.0 * i
        x.data = torch.full((7,), 1.0).mul(2)
        assert float(x.sum()) == 14.0
    assert run.stats().resident_bytes < 100_000, run.stats()
    assert run.stats().external_bytes == 0, run.stats()
print("done")
"""

# These make and free most kinds of tensors, storages and ops.
SUITES = [
    "contract/test_composites.py",
    "contract/test_contract_failures.py",
    "contract/test_contract_outside.py",
    "contract/test_contract_versions.py",
    "torch_compat/test_opaque_ops.py",
    "contract/test_ops_that_go.py",
    "contract/test_subclasses.py",
]


def run(*command: str) -> str:
    result = subprocess.run(
        [sys.executable, *command],
        env=os.environ | OVERWRITTEN,
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("program", [LIBRARIES, STORAGES], ids=["libraries", "storages"])
def test_program(program: str) -> None:
    assert run("-c", program) == "done\n"


def test_suites() -> None:
    assert " passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES)
