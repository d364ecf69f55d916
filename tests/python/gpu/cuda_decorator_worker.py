"""Runs one check of the decorator of PyTorch's CUDA allocator in a new process, without a GPU.

python cuda_decorator_worker.py routes
python cuda_decorator_worker.py --serve                 many, see forks.py
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

import fakegpu
from forks import SERVE, serve

CHECKS: dict[str, Callable[[Any], None]] = {}


def check(function: Callable[[Any], None]) -> Callable[[Any], None]:
    CHECKS[function.__name__] = function
    return function


def refused(function: Callable[[], Any]) -> str:
    try:
        function()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("not refused")


@check
def forwarded(module: Any) -> None:
    """Prints the calls that the decorated allocator receives when each method is called."""
    module.install_over_recording()
    module.enter(1)  # a device other than the device of the calls
    assert module.in_slot() == "decorated"
    module.log()
    module.call_all()
    print(json.dumps(module.log()))


@check
def comes_and_goes(module: Any) -> None:
    """The decorator is installed from the first scope until no memory of any scope is in use."""

    def where() -> tuple[str, str]:
        return module.in_slot(), module.in_table()

    module.install_over_recording()
    assert where() == ("before", "before")
    module.enter(0)
    module.enter(1)
    assert where() == ("decorated", "decorated")
    module.leave(1)
    memory = module.raw_alloc(8)
    assert module.used(0) == 1
    module.leave(0)
    assert where() == ("decorated", "decorated")
    module.raw_delete(memory)
    assert where() == ("before", "before") and "raw_delete" not in module.log()
    module.enter(0)
    assert where() == ("decorated", "decorated")
    module.leave(0)
    assert where() == ("before", "before")


@check
def another_one_stays(module: Any) -> None:
    """An allocator that replaced the decorator within a scope stays at the end of the scope."""
    module.install_over_recording()
    module.enter(0)
    module.replace()
    module.leave(0)
    assert module.in_slot() == "another"
    module.enter(0)
    assert module.in_slot() == "another"


@check
def requests_go_to_the_budget(module: Any) -> None:
    module.install_over_recording()
    module.enter(0)
    module.log()
    data = module.allocate(8)
    raw = [module.raw_alloc(8), module.raw_alloc_with_stream(8)]
    assert module.used(0) == 3 and module.log() == []
    del data  # by recoup's deleter
    assert module.used(0) == 2 and module.deleted() == 0
    large = [module.raw_alloc(1 << 20), module.raw_alloc_with_stream(1 << 20)]
    outside = module.allocate(1 << 20)  # a request that the scope declines
    assert module.log() == ["raw_alloc", "raw_alloc_with_stream", "allocate"]
    assert len({*raw, *large}) == 4
    assert module.allocate(0).address == 0 and module.log() == ["allocate"]
    del outside
    assert module.deleted() == 1 and module.used(0) == 2


@check
def addresses_go_to_their_owner(module: Any) -> None:
    """Within a scope and after it."""
    module.install_over_recording()
    theirs = module.allocate(8)
    module.enter(0)
    ours = module.allocate(8)
    raw = [module.raw_alloc(8) for _ in range(2)]
    for _ in range(2):
        module.log()
        module.record_stream(ours)
        assert module.streams(0) >= 1 and module.log() == []
        module.record_stream(theirs)
        assert module.log() == ["recordStream"]
        for ask in (module.base, module.share):
            assert "shared with other processes" in refused(lambda ask=ask: ask(ours.address))
            assert module.log() == []
        assert module.base(theirs.address) == theirs.address
        module.share(theirs.address)
        assert module.log() == ["getBaseAllocation", "shareIpcHandle"]
        # Later versions of PyTorch have these.
        for ask in (getattr(module, name, None) for name in ("context", "annotate")):
            if ask is None:
                continue
            ask(ours.address)
            assert module.log() == []
            ask(theirs.address)
            assert len(module.log()) == 1
        if hasattr(module, "allocate_at"):
            assert "an address that a budget manages" in refused(
                lambda: module.allocate_at(ours.address)
            )
            module.allocate_at(theirs.address)
            assert module.log() == ["allocateWithAddress"]
        between = module.copies_between()
        module.copy(ours.address, 0, theirs.address, 1)
        assert module.copies_between() == between + 1 and module.log() == []
        module.copy(theirs.address, 0, theirs.address, 1)
        module.copy(ours.address, 0, theirs.address, 0)
        assert module.copies_between() == between + 1
        assert module.log() == ["memcpyAsync", "memcpyAsync"]
        module.raw_delete(raw.pop())
        module.raw_delete(theirs.address)
        assert module.log() == ["raw_delete"]
        module.leave(0)


@check
def deleters_of_a_scope_find_the_owner(module: Any) -> None:
    """A scope's raw_deleter() serves both allocators; outside of scopes it is PyTorch's."""
    module.install_over_recording()
    theirs = module.allocate(8)
    module.enter(0)
    memory = module.raw_alloc(8)
    module.log()
    module.record_stream_by_hand(memory)
    assert module.streams(0) == 1 and module.log() == []
    module.record_stream_by_hand(theirs.address)
    assert module.log() == ["raw_deleter", "recordStream"]
    module.raw_deallocate(memory)
    assert module.used(0) == 0 and module.log() == []
    module.raw_deallocate(theirs.address)
    assert module.log() == ["raw_delete"]
    kept = module.allocate(8)
    module.leave(0)
    assert module.in_slot() == "decorated"
    module.raw_deallocate(theirs.address)
    assert module.log() == ["raw_deleter"] and module.deleted() == 1
    del kept


@check
def pools_and_captures_are_refused_in_a_budget(module: Any) -> None:
    module.install_over_recording()
    module.enter(0)
    text = refused(lambda: module.begin_pool(0))
    assert "memory pool" in text and "cuda:0" in text and "before or after the scope" in text, text
    module.begin_pool(1)
    assert module.log() == ["beginAllocateToPool"]
    module.begin_capture()
    assert "CUDA graph" in refused(lambda: module.raw_alloc(8))
    module.leave(0)
    module.begin_pool(0)
    assert module.log() == ["beginAllocateToPool"]


@check
def over_pytorch(module: Any) -> None:
    """Without a driver, PyTorch's own allocator answers the same through the decorator."""

    def answers() -> list[Any]:
        return [
            module.name(),
            module.is_enabled(),
            module.is_initialized(),
            module.outside_owns(4096),
            torch._C._cuda_getAllocatorBackend(),
            refused(lambda: module.base(4096)).splitlines()[0],
            refused(lambda: module.raw_delete(4096)).splitlines()[0],
        ]

    module.install_over_pytorch()
    plain = answers()
    assert plain[0] == "native" and plain[3] is False, plain
    module.enter(0)
    assert (module.in_slot(), module.in_table()) == ("decorated", "decorated")
    assert answers() == plain
    data = module.allocate(8)
    assert module.used(0) == 1
    module.leave(0)
    assert answers() == plain
    del data
    assert (module.in_slot(), module.in_table()) == ("before", "before")
    assert answers() == plain


def run(words: list[str]) -> None:
    CHECKS[words[0]](fakegpu.load_extension("_test_cuda_decorator"))


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        serve(run)
    else:
        run(sys.argv[1:])
