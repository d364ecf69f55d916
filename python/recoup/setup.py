"""The parameters of a scope."""

import dataclasses

import torch

from recoup import _C
from recoup._memory.fractions import MemoryFraction
from recoup.rules import Rules


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """The parameters of each run of a scope."""

    options: _C.Options
    device: torch.device
    trace: str | None = None
    """File to record the trace to; None: no recording."""
    decisions: bool = False
    """Whether the engine's decisions are kept."""
    modules: bool = False
    """Whether memory and time are attributed to modules."""
    lines: bool = False
    """Whether the program line that ran each op is recorded."""
    timeline: bool = False
    """Whether the time of each event is recorded."""
    rules: Rules | None = None
    """What must not be evicted or spilled, by module; None: no rules."""
    adapts: bool = False
    """Whether the budget follows the memory that the machine has."""
    shared_as: str | None = None
    """Name of the group of processes that share the budget; None: it is not shared."""
    fraction: MemoryFraction | None = None
    """Determines the budget when the scope begins, overriding that of the options; None: a size."""
