"""Profilers and other code that reads tensors outside of ops, in a budget."""

import copy
import subprocess
from collections.abc import Callable, Iterator

import pytest
import torch

import recoup
from forks import Server

WORK = """
import torch, torch.nn as nn, recoup, sys
torch.manual_seed(0)
m = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(12)])
x = torch.randn(512, 256)
def work():
    m(x).t().t().sum().backward()
    grads = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    return grads
plain = work()
def same(got): assert all(torch.equal(a, b) for a, b in zip(plain, got)), "other bits"
"""

INSIDE = """
with recoup.budget('8MiB', options=recoup.Options(evict_after_op={evict})) as run:
    with {profiler} as prof: got = work()
"""
OUTSIDE = """
with {profiler} as prof:
    with recoup.budget('8MiB', options=recoup.Options(evict_after_op={evict})) as run: got = work()
"""

PROFILERS = {
    "shapes": "torch.profiler.profile(record_shapes=True)",
    "stack": "torch.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True)",
    "autograd": "torch.autograd.profiler.profile(record_shapes=True, with_stack=True)",
    "anomaly": "torch.autograd.set_detect_anomaly(True)",
}


Run = Callable[[str], str]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with Server() as server:
        yield lambda code: quiet(server.run(code))


def quiet(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stderr[-2000:]
    noise = [line for line in done.stderr.splitlines() if "recoup" in line or "RecordFunc" in line]
    assert not noise, noise[:3]
    return done.stdout


@pytest.mark.parametrize("evict", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("order", [INSIDE, OUTSIDE], ids=["inside", "outside"])
@pytest.mark.parametrize("profiler", PROFILERS.values(), ids=PROFILERS.keys())
def test_profilers_print_nothing_and_change_no_bit(
    profiler: str, order: str, evict: bool, run: Run
) -> None:
    code = WORK + order.format(profiler=profiler, evict=evict)
    code += "same(got)\nassert run.stats().replays\n"
    if "profile(" in profiler:
        events = "prof.function_events" if "autograd" in profiler else "prof.events()"
        code += f"assert any(e.input_shapes for e in {events}), 'no shapes'\n"
    # The scope leaves no observer: an op outside of it is not recorded.
    run(code + "same(work())\n")


def test_an_evicted_tensor_still_raises_on_other_threads(run: Run) -> None:
    code = WORK + (
        "import threading, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "seen = []\n"
        "with recoup.budget('8MiB') as run:\n"
        "    with torch.profiler.profile(record_shapes=True):\n"
        "        value = torch.arange(65536.) * 2; recoup.evict(value)\n"
        "        def touch():\n"
        "            recoup._C.carry(False)\n"
        "            try: value.sum()\n"
        "            except RuntimeError as error: seen.append(str(error))\n"
        "        t = threading.Thread(target=touch); t.start(); t.join()\n"
        "        view = value.view(256, 256)\n"
        "        t = threading.Thread(target=touch); t.start(); t.join()\n"
        "assert len(seen) == 2 and all('materialize' in s for s in seen), seen\n"
    )
    run(code)


def test_readers_outside_of_ops_see_the_bytes() -> None:
    """Printing, debuggers, hooks and copies rematerialize the tensor."""
    with recoup.budget("64MiB"):
        value = torch.arange(4096.0) * 2

        def evicted() -> torch.Tensor:
            assert recoup.evict(value)
            return value

        assert "8.1900e+03" in repr(evicted())
        assert f"{evicted()[1]:.0f}" == "2"
        assert "8.1900e+03" in str(evicted())
        seen = []
        weight = torch.ones(4096, requires_grad=True)
        product = weight * evicted()
        product.register_hook(lambda grad: seen.append((evicted()[3] * grad[0]).item()))
        product.sum().backward()
        assert seen == [6.0]
        # The last check, because a copy takes the storage's address and so makes it immovable.
        assert torch.equal(copy.copy(evicted()), torch.arange(4096.0) * 2)
