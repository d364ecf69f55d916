"""The memory of a budget's device."""

import torch

from recoup import _C, gpus
from recoup._memory import machine
from recoup._memory.sizes import format_bytes, parse_bytes


def memory_bytes(device: torch.device) -> int:
    """The largest possible budget on the device.

    Of a GPU all of its memory. Of the CPU physical memory, or the limit of the process's cgroup if
    it is less: the kernel kills a process that takes more, so a larger budget cannot be kept.
    """
    return _most(device)[0]


def _most(device: torch.device) -> tuple[int, str]:
    """The largest budget, and the file that limits it; empty if the device's memory does."""
    if device.type != "cpu":
        return _C.gpu_memory(device.index)["total_bytes"], ""
    most = machine.look().most
    return most.limit_bytes, "" if most.kind == "physical" else most.source


def free_bytes(device: torch.device) -> int:
    """The memory available to a budget: on the CPU all of the process's memory."""
    if device.type == "cpu":
        return memory_bytes(device)
    memory = _C.gpu_memory(device.index)
    return memory["free_bytes"] + memory["outside_bytes"]


def outside_bytes(device: torch.device) -> int:
    """The part of a budget on the device that is in use before the scope begins.

    0 on the CPU, where a budget is charged for outside tensors when it encounters them.
    """
    if device.type == "cpu":
        return 0
    gpus.forget_workspaces(device)
    gpus.empty_cache(device)
    return _C.gpu_memory(device.index)["outside_bytes"]


def parse_size(
    value: int | str, device: torch.device, *, name: str = "budget", also: str = ""
) -> int:
    """A size within the device's memory, in bytes. Raises as `parse_bytes`."""
    limit_bytes, source = _most(device)
    return parse_bytes(value, name=name, also=also, limit_bytes=limit_bytes, limit_source=source)


def no_addresses() -> str:
    """Why the system refuses a CPU scope the addresses of its pool, and what to do."""
    whole = format_bytes(_C.physical_memory_bytes())
    limits = [each for each in machine.look().limits if each.kind == "addresses"]
    because = ", ".join(f"{each.source} is {format_bytes(each.limit_bytes)}" for each in limits)
    return (
        f"the system refuses to reserve addresses for all physical memory, {whole}, as a scope "
        f"does before it uses any: {because or 'it gives no reason'}. Lift `ulimit -v` and "
        "`ulimit -d`; to limit memory use a cgroup, which does not count addresses"
    )
