"""The random programs of `random_programs.py` on the device that stands for CUDA.

python gpu_random_programs.py --seeds 0:60
RECOUP_TEST_SPILL=65536 python gpu_random_programs.py --seeds 0:60    with a tier of 65536 bytes
"""

import dataclasses
import os
from typing import Any

import torch

import differential
import fakegpu
import program_writer
import random_programs
import recoup
from recoup._memory.device_memory import outside_bytes

DEVICE = f"{fakegpu.NAME}:0"
# The engine takes memory from the device in units of this size.
UNIT_BYTES = 1 << 16
# Copies cost nearly nothing, and the unit is smaller than the programs' tensors.
SPILL = {
    "spill_bytes": int(os.environ.get("RECOUP_TEST_SPILL", "0")),
    "spill_unit_bytes": 512,
    "spill_write_ns_per_byte": 0.001,
    "spill_read_ns_per_byte": 0.001,
    "spill_request_ns": 1.0,
}

_bits = differential.bits
_budget = recoup.budget
_namespace = program_writer.namespace


def bits(tensor: torch.Tensor) -> tuple[Any, ...]:
    tensor = tensor.detach()
    if tensor.device.type != fakegpu.NAME:
        return _bits(tensor)
    return (*_bits(tensor.cpu()), tensor.device, tensor.stride(), tensor.storage_offset())


def budget(budget: int, **options: Any) -> recoup.Budget:
    with torch.device("cpu"):
        outside = outside_bytes(torch.device(DEVICE))
        made = _budget(budget + outside + UNIT_BYTES, device=DEVICE, **options)
        if SPILL["spill_bytes"] > 0:
            changed = recoup._C.Options(**(made.setup.options.as_dict() | SPILL))
            made = recoup.Budget(dataclasses.replace(made.setup, options=changed))
        return made


def namespace(run: Any) -> dict[str, Any]:
    names = _namespace(run)
    names["gen"] = torch.Generator(device=DEVICE).manual_seed(5)
    return names


def main() -> None:
    fakegpu.install(seed=3, memory_bytes=1 << 30)
    differential.bits = random_programs.bits = bits
    recoup.budget = budget
    random_programs.namespace = program_writer.namespace = namespace
    random_programs.pages = lambda seed: False  # results on a GPU are not paged
    torch.set_default_device(DEVICE)
    # Otherwise the reference counts that some programs read depend on when autograd's thread runs.
    with torch.autograd.set_multithreading_enabled(False):
        random_programs.main()


if __name__ == "__main__":
    main()
