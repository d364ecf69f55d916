"""Budgets whose size is determined when their scope begins: "60%" and "auto".

**Base of a percentage**: the memory available to tensors when the scope begins. It is the free
bytes, plus the bytes of tensors that already exist. `recoup._memory.machine` finds the free bytes
of the CPU; those of a GPU are the driver's and those in PyTorch's cache. On the CPU the existing
tensors are those that Python's garbage collector finds. They are charged to the budget at once,
because each takes its memory whether an op uses it or not.

**"auto"** is all of that less a reserve for non-tensor memory. On the CPU non-tensor memory is the
memory of the process, less that of the pool, less the bytes charged outside of the pool. The
reserve has two parts, measured when the scope begins. One is the pages of code and other files that
the process runs on, which the kernel counts as free. The other is a quarter of all non-tensor
memory, since libraries, threads and Python take more in the first steps. The quarter is an
assumption. So after optimizer steps 1, 2, 4, 8 and so on `Sizing.after_step` measures the growth
and charges the budget for the part beyond the quarter: the pool then returns as many pages to the
system.

On a GPU non-tensor memory is the memory that the driver has given out, less that of PyTorch's and
recoup's tensors: libraries, and other processes. The reserve is half of it, because it is not
corrected later.

docs/decisions/sizes.md gives the reasons.
"""

import gc
import warnings
from collections.abc import Iterator

import torch

from recoup import _C
from recoup._memory import machine, resident
from recoup._memory.device_memory import free_bytes, memory_bytes
from recoup._memory.fractions import MemoryFraction
from recoup._memory.sizes import format_bytes
from recoup._patching import made_outside
from recoup.errors import OutOfBudgetError, add_note
from recoup.warning import RecoupWarning

# Non-tensor memory may grow by one part in this number.
_GROWTH = 4
_GROWTH_ON_GPU = 2


class Sizing:
    """Determines the budget of one run, and corrects it."""

    def __init__(self, fraction: MemoryFraction, device: torch.device) -> None:
        """Determines the budget. Call it before the engine is made, so that its pool is new.

        Raises RuntimeError if nothing is left for tensors; OSError if there is no /proc.
        """
        self._asked = fraction
        self._is_on_cpu = device.type == "cpu"
        self._steps = 0
        self._held: list[_C.Reservation] = []
        self._held_bytes = 0
        self._peak_bytes = -1
        self._held_at_peak = 0
        self._warned = False
        self._pools_before = frozenset[int]()
        if self._is_on_cpu:
            self._decide_on_cpu(device)
        else:
            self._decide_on_gpu(device)

    budget_bytes: int
    """The determined size."""

    def _decide_on_cpu(self, device: torch.device) -> None:
        existing, free = _bytes_of_tensors(), machine.look().free
        said = (
            f"{format_bytes(free.free_bytes)} are free according to {free.source}, and existing "
            f"tensors take {format_bytes(existing)}"
        )
        reserve = 0
        if self._asked.value is None:
            self._pools_before = frozenset(resident.pools())
            process = resident.process()
            self._at_first = max(process.taken - existing, 0)
            self._may_grow = self._at_first // _GROWTH
            reserve = min(process.files, self._at_first) + self._may_grow
        self._decide(free.free_bytes + existing, reserve, said)
        # Tensors of mapped files may exceed physical memory.
        self.budget_bytes = min(self.budget_bytes, memory_bytes(device))

    def _decide_on_gpu(self, device: torch.device) -> None:
        whole, memory = free_bytes(device), _C.gpu_memory(device.index)
        no_tensor = memory["total_bytes"] - memory["free_bytes"] - memory["reserved_bytes"]
        said = f"{format_bytes(whole)} of {device} are free or reserved by PyTorch"
        self._decide(whole, max(no_tensor, 0) // _GROWTH_ON_GPU, said)

    def _decide(self, whole: int, reserve: int, said: str) -> None:
        if self._asked.value is not None:
            size = int(whole * self._asked.value)
        else:
            size = whole - reserve
            said += f"; {format_bytes(reserve)} are reserved for memory other than tensors"
        if size <= 0:
            raise RuntimeError(
                f"the budget {self._asked.text!r} leaves no memory for tensors: {said}. Free "
                "memory, raise the limit, or give the budget as a size"
            )
        self.budget_bytes = size
        self._said = said

    def enter(self) -> None:
        """Charges the existing tensors to the scope, which is open.

        Raises OutOfBudgetError if they do not fit.
        """
        if not self._is_on_cpu:
            return
        try:
            for each in _tensors():
                made_outside.charge(each)
        except OutOfBudgetError as error:
            size = format_bytes(self.budget_bytes)
            add_note(error, f"The budget {self._asked.text!r} is {size} here: {self._said}.")
            raise

    def after_step(self, engine: _C.Engine) -> None:
        """Charges the budget for growth of non-tensor memory beyond the reserve.

        Warns once if that does not fit.
        """
        self._steps += 1
        corrects = self._is_on_cpu and self._asked.value is None
        if not corrects or self._steps & (self._steps - 1):
            return
        self.held_at_peak(engine)
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
            f"recoup: memory other than tensors grew by {format_bytes(grown)} since the scope "
            f"began, {format_bytes(excess)} more than the budget {self._asked.text!r} reserves "
            f"for it, and evicting tensors cannot make room: {why} The process may exceed the "
            "available memory: give a smaller budget, as a size or in percent",
            RecoupWarning,
            stacklevel=2,
        )

    def held_at_peak(self, engine: _C.Engine) -> int:
        """Bytes of the engine's peak that are charged for growth of non-tensor memory.

        Call it before each change of these charges: a peak belongs to the charges in force when it
        was first seen.
        """
        peak = engine.stats()["peak_bytes"]
        if peak != self._peak_bytes:
            self._peak_bytes, self._held_at_peak = peak, self._held_bytes
        return self._held_at_peak

    def forget_peak(self) -> None:
        """The engine has started a new peak."""
        self._peak_bytes = -1

    def leave(self, engine: _C.Engine) -> None:
        """Releases the charges before the scope ends, so that tensors have the whole budget."""
        self.held_at_peak(engine)
        while self._held:
            self._held.pop().release()
        self._held_bytes = 0


def _tensors() -> Iterator[torch.Tensor]:
    for each in gc.get_objects():
        # By type: an object's own `__class__` may run code.
        if issubclass(type(each), torch.Tensor):
            yield each


def _bytes_of_tensors() -> int:
    """Bytes of the CPU storages of all tensors that the garbage collector finds."""
    sizes: dict[int, int] = {}
    with torch._C.DisableTorchFunction():
        for each in _tensors():
            if torch._C._has_storage(each):
                at = torch._C._storage_address(each)  # type: ignore[attr-defined]
                sizes[at] = max(sizes.get(at, 0), _bytes_of_storage(each))
    return sum(sizes.values())


def _bytes_of_storage(tensor: torch.Tensor) -> int:
    """Bytes of the tensor's storage on the CPU; 0 on another device."""
    # A storage for which a Python object exists cannot be brought in, see outside.py. So make no
    # such object for tensors that a spill tier could take over.
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided:
        if tensor.device.type != "cpu":
            return 0
        if not tensor._is_view() and tensor.storage_offset() == 0:
            return tensor.numel() * tensor.element_size()
    storage = torch.Tensor.untyped_storage(tensor)
    return storage.nbytes() if storage.device.type == "cpu" else 0
