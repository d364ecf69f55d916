"""Ways to train a net, each in a process of its own, since an allocator is chosen at its start."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Way:
    """Environment of a process, and how it trains."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    library: str = ""
    """Preloaded library whose malloc replaces the default one."""
    package: str = ""
    """Debian package of the library."""
    checkpoints: bool = False
    """Whether every block is checkpointed."""
    budget: bool = False
    tier: bool = False
    """Whether the budget has a spill tier."""


_KEPT_HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
"""By default glibc maps each large block anew, whose pages fault again, and returns memory at the
end of its heap. With these settings all blocks come from the heap, which only grows."""

DEFAULT = Way("plain")
PLAIN = (
    DEFAULT,
    Way("plain-nommap", _KEPT_HEAP),
    Way(
        "jemalloc",
        {"MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always"},
        "libjemalloc.so.2",
        "libjemalloc2",
    ),
    Way("tcmalloc", {}, "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
)
"""The unmodified program on the allocators that a user can choose."""
CHECKPOINT = Way("checkpoint", checkpoints=True)
RECOUP = Way("recoup", budget=True)
TIER = Way("recoup+tier", budget=True, tier=True)
WAYS = (*PLAIN, CHECKPOINT, RECOUP, TIER)


def environment_of(way: Way) -> dict[str, str]:
    """This process's environment, with the way's choice of an allocator instead of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LD_PRELOAD", "GLIBC_TUNABLES") and not name.startswith("MALLOC_")
    }
    return kept | {**way.environment} | ({"LD_PRELOAD": way.library} if way.library else {})


def is_installed(way: Way) -> bool:
    """Whether the loader finds the library: it reports a missing one, but continues."""
    loaded = subprocess.run(
        ["true"], env=environment_of(way), stderr=subprocess.PIPE, text=True, check=True
    )
    return not loaded.stderr
