"""The two hooks by which recoup sees ops, and the choice between them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import recoup
from conftest import bits_equal
from recoup import _C

KEYS = (Path(torch.__file__).parent / "include/c10/core/DispatchKey.h").read_text()
# Before PyTorch 2.13 Fake is above Python: it would see subclasses instead of their parts.
USUAL = "fake" if KEYS.index("\n  Fake,") < KEYS.index("\n  Python,") else "backend_select"
WORKER = str(Path(__file__).with_name("hook_worker.py"))


def run(hook: str | None, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if name != "RECOUP_HOOK"}
    return subprocess.run(
        [sys.executable, WORKER, *arguments],
        env=env | ({} if hook is None else {"RECOUP_HOOK": hook}),
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("hook", "taken", "name"),
    [
        (None, False, USUAL),
        ("", False, USUAL),
        ("fake", False, "fake"),
        ("backend_select", False, "backend_select"),
        (None, True, "backend_select"),
        ("backend_select", True, "backend_select"),
    ],
)
def test_each_hook_sees_ops(hook: str | None, taken: bool, name: str) -> None:
    done = run(hook, *(["taken"] if taken else []))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == name
    assert "Overriding" not in done.stderr


def test_a_used_key_is_an_import_error() -> None:
    done = run("fake", "taken")
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: recoup cannot watch ops by dispatch key Fake")
    assert "RECOUP_HOOK=backend_select" in last


def test_an_unknown_hook_is_an_import_error() -> None:
    done = run("vulkan")
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ImportError: RECOUP_HOOK must be fake or backend_select; got vulkan"


def test_the_key_that_marks_threads_of_scopes_is_unused() -> None:
    assert torch._C._dispatch_get_registrations_for_dispatch_key("CustomRNGKeyId") == []


@pytest.mark.skipif(_C.hook != "backend_select", reason="of the kernels per op")
def test_every_op_has_our_kernel() -> None:
    with recoup.budget("1MiB"):  # registers ops of libraries that were loaded since the last scope
        names = torch._C._dispatch_get_all_op_names()
    watched = set(torch._C._dispatch_get_registrations_for_dispatch_key("BackendSelect"))
    assert len(watched) > 2000
    missing = [name for name in names if name not in watched]
    assert [name for name in missing if torch._C._dispatch_has_kernel(name)] == []


@pytest.mark.parametrize("budget", ["512KiB", "64MiB"])
def test_values_made_under_the_python_dispatcher_are_right(budget: str) -> None:
    """PyTorch enables it while it traces; replays run without it."""
    from torch._dispatch.python import enable_python_dispatcher

    with recoup.budget(budget, options=recoup.Options(small_result_bytes=0)) as run:
        before = torch.arange(4096.0).mul(0.25)
        recoup.evict(before)
        with enable_python_dispatcher():
            made = torch.arange(4096.0).mul(0.5)
            recoup.evict(made)
            assert bits_equal(before, torch.arange(4096.0) * 0.25)
        recoup.evict(made)
        kept = [torch.arange(16384.0).mul(i) for i in range(20)]
        assert bits_equal(made, torch.arange(4096.0) * 0.5)
        assert bits_equal(kept[3], torch.arange(16384.0) * 3)
        kept.clear()
        run.check()
