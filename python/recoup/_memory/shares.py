"""Budgets that are decided when their scope begins: "60%" and "auto".

**What a share is of.** What tensors may have then: the bytes that are free, and those of tensors
that exist already. Free is what `recoup._memory.machine` finds, of a GPU what its driver and
PyTorch's cache have. On the CPU tensors that exist are those that Python's garbage collector finds.
They are charged to the budget at once, for each takes its memory whether an op names it or not.

**"auto"** is all of that minus a reserve for what is no tensor. On the CPU that is what the process
takes, less the memory behind the pool, less what is charged outside of the pool. Both parts of the
reserve are measured when the scope begins: pages of code and other files that the process runs on,
which the kernel calls free; and a quarter of all that is no tensor, since libraries, threads and
Python take more in the first steps. That it is a quarter is an assumption. So behind steps 1, 2, 4,
8 and so on of an optimizer `Sizing.after_step` measures what has come to it, and charges the budget
for what is beyond the quarter: the pool then gives so many pages back to the system.

On a GPU what is no tensor is what the driver has given less what PyTorch and recoup have for
tensors: libraries, and other processes. The reserve is a half of that, for nothing is corrected.

docs/decisions/sizes.md says why.
"""

import gc
import warnings
from collections.abc import Iterator

import torch

from recoup import _C
from recoup._memory import machine, resident
from recoup._memory.device_memory import free_bytes, memory_bytes
from recoup._memory.share_text import Share as Share
from recoup._memory.sizes import format_bytes
from recoup._patching import made_outside
from recoup.errors import OutOfBudgetError, add_note
from recoup.warning import RecoupWarning

# What is no tensor may grow by one part in so many.
_GROWTH = 4
_GROWTH_ON_GPU = 2


class Sizing:
    """Of one run: decides its budget, and corrects it."""

    def __init__(self, share: Share, device: torch.device) -> None:
        """Decides. Before the engine is made, whose pool is not taken for one that was there.

        Raises RuntimeError when nothing is left for tensors; OSError where there is no /proc.
        """
        self._share = share
        self._is_on_cpu = device.type == "cpu"
        self._steps = 0
        self._held: list[_C.Reservation] = []
        self._held_bytes = 0
        self._warned = False
        self._pools_before = frozenset[int]()
        if self._is_on_cpu:
            self._decide_on_cpu(device)
        else:
            self._decide_on_gpu(device)

    budget_bytes: int
    """What was decided."""

    def _decide_on_cpu(self, device: torch.device) -> None:
        existing, free = _bytes_of_tensors(), machine.look().free
        said = (
            f"{format_bytes(free.free_bytes)} are free by {free.source}, and tensors that exist "
            f"have {format_bytes(existing)}"
        )
        reserve = 0
        if self._share.fraction is None:
            self._pools_before = frozenset(resident.pools())
            process = resident.process()
            self._at_first = max(process.taken - existing, 0)
            self._may_grow = self._at_first // _GROWTH
            reserve = min(process.files, self._at_first) + self._may_grow
        self._decide(free.free_bytes + existing, reserve, said)
        # Tensors of mapped files may be more than all memory.
        self.budget_bytes = min(self.budget_bytes, memory_bytes(device))

    def _decide_on_gpu(self, device: torch.device) -> None:
        whole, memory = free_bytes(device), _C.gpu_memory(device.index)
        no_tensor = memory["total_bytes"] - memory["free_bytes"] - memory["reserved_bytes"]
        said = f"{format_bytes(whole)} of {device} are free or PyTorch's"
        self._decide(whole, max(no_tensor, 0) // _GROWTH_ON_GPU, said)

    def _decide(self, whole: int, reserve: int, said: str) -> None:
        if self._share.fraction is not None:
            size = int(whole * self._share.fraction)
        else:
            size = whole - reserve
            said += f"; {format_bytes(reserve)} are reserved for memory that no tensor has"
        if size <= 0:
            raise RuntimeError(
                f"the budget {self._share.text!r} leaves nothing for tensors: {said}. Free memory, "
                "raise the limit, or give a size"
            )
        self.budget_bytes = size
        self._said = said

    def enter(self) -> None:
        """Charges the tensors that exist to the scope, which is open.

        Raises OutOfBudgetError when they do not fit.
        """
        if not self._is_on_cpu:
            return
        try:
            for each in _tensors():
                made_outside.charge(each)
        except OutOfBudgetError as error:
            size = format_bytes(self.budget_bytes)
            add_note(error, f"The budget {self._share.text!r} is {size} here: {self._said}.")
            raise

    def after_step(self, engine: _C.Budget) -> None:
        """Charges the budget for what is no tensor and more than was assumed.

        Warns, once, when that does not fit.
        """
        self._steps += 1
        corrects = self._is_on_cpu and self._share.fraction is None
        if not corrects or self._steps & (self._steps - 1):
            return
        pools = resident.pools()
        ours = sum(size for at, size in pools.items() if at not in self._pools_before)
        outside = engine.stats()["external_bytes"] - self._held_bytes
        grown = resident.process().taken - ours - outside - self._at_first
        excess = grown - self._may_grow - self._held_bytes
        if excess <= 0:
            return
        try:
            self._held.append(_C.Reservation(excess))
            self._held_bytes += excess
        except OutOfBudgetError as error:
            self._warn(grown, excess, str(error))

    def _warn(self, grown: int, excess: int, why: str) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"recoup: the memory that no tensor has grew by {format_bytes(grown)} since the scope "
            f"began, {format_bytes(excess)} more than the budget {self._share.text!r} reserves for "
            f"it, and tensors cannot make room: {why} The process may take more memory than there "
            "is: give a smaller budget, as a size or in percent",
            RecoupWarning,
            stacklevel=2,
        )

    def leave(self) -> None:
        """Before the scope ends: all of the budget is for tensors again."""
        while self._held:
            self._held.pop().release()
        self._held_bytes = 0


def _tensors() -> Iterator[torch.Tensor]:
    for each in gc.get_objects():
        # By type: the class that an object says it has may run code.
        if issubclass(type(each), torch.Tensor):
            yield each


def _bytes_of_tensors() -> int:
    """Of the storages on the CPU of all tensors that there are."""
    sizes: dict[int, int] = {}
    with torch._C.DisableTorchFunction():
        for each in _tensors():
            if torch._C._has_storage(each):
                at = torch._C._storage_address(each)  # type: ignore[attr-defined]
                sizes[at] = max(sizes.get(at, 0), _bytes_of_storage(each))
    return sum(sizes.values())


def _bytes_of_storage(tensor: torch.Tensor) -> int:
    """On the CPU; of another device 0."""
    # A storage that Python has an object of stays where it is, see outside.py: none is made for
    # those that a spill tier could take over.
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided:
        if tensor.device.type != "cpu":
            return 0
        if not tensor._is_view() and tensor.storage_offset() == 0:
            return tensor.numel() * tensor.element_size()
    storage = torch.Tensor.untyped_storage(tensor)
    return storage.nbytes() if storage.device.type == "cpu" else 0
