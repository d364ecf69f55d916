"""Ways to train a net, each in a process of its own: an allocator is chosen as a process begins."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Way:
    """What a process is started with, and how it trains."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    library: str = ""
    """Loaded first: the allocator that malloc is then."""
    package: str = ""
    """Debian's, which has the library."""
    checkpoints: bool = False
    """Around every block."""
    budget: bool = False


_KEPT_HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
"""glibc maps a large block anew each time, whose pages fault again, and gives memory back at the
end of its heap. Not so: all blocks come from the heap, which only grows."""

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
"""The program without a change, on the allocators that a user can give it."""
CHECKPOINT = Way("checkpoint", checkpoints=True)
RECOUP = Way("recoup", budget=True)
WAYS = (*PLAIN, CHECKPOINT, RECOUP)


def environment_of(way: Way) -> dict[str, str]:
    """Ours without what chooses an allocator, and with what the way chooses."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LD_PRELOAD", "GLIBC_TUNABLES") and not name.startswith("MALLOC_")
    }
    return kept | {**way.environment} | ({"LD_PRELOAD": way.library} if way.library else {})


def is_installed(way: Way) -> bool:
    """The loader goes on without a library that it does not find, but says so."""
    loaded = subprocess.run(
        ["true"], env=environment_of(way), stderr=subprocess.PIPE, text=True, check=True
    )
    return not loaded.stderr
