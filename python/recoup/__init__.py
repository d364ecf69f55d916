"""Runs an unmodified PyTorch program inside a hard memory budget, bit for bit the same.

import recoup

with recoup.budget("4GiB") as run:
    train()
print(run.report())
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator

import torch  # before _C, which is linked against it

from recoup import _C
from recoup.decisions import Decision
from recoup.dtr_log import read_dtr_log
from recoup.errors import OutOfBudgetError
from recoup.run import Budget, CostModel, Options, ReplayOrder, Run
from recoup.sizes import parse_bytes
from recoup.stats import Stats
from recoup.traces import Moment, Simulation, Trace, TracedOp

__all__ = [
    "Budget",
    "Decision",
    "Moment",
    "OutOfBudgetError",
    "Policy",
    "Run",
    "Simulation",
    "Stats",
    "Trace",
    "TracedOp",
    "allow_replay",
    "budget",
    "evict",
    "is_resident",
    "materialize",
    "pin",
    "policies",
    "read_dtr_log",
    "trace",
]
__version__ = _C.__version__

_C.set_out_of_budget_error(OutOfBudgetError)


def budget(
    budget: int | str,
    *,
    policy: str = "dtr",
    verify: bool = False,
    small_filter: bool | None = None,
    sampling: bool | None = None,
    seed: int = 1033096058,
    usefulness: bool = True,
    replay_order: ReplayOrder = "memory",
    max_replay_ratio: float = 10.0,
    block_size: int | str | None = None,
    small_leaf_bytes: int = 1024,
    max_depth: int = 10000,
    evict_after_op: bool = False,
    cost_model: CostModel = "measured",
    trace: str | os.PathLike[str] | None = None,
    decisions: bool = False,
) -> Budget:
    """A scope in which tensor memory never exceeds `budget`: `with ... as run:` or a decorator.

    budget: bytes, or text such as "4GiB" or "500MB".
    policy: chooses what to evict; a name of `policies()`.
    verify: hash every output and compare every replay with it (slow).
    small_filter, sampling: do not consider values below 1 % of the mean size; score only about
        2 sqrt(N) candidates. None: as the policy's paper has them.
    seed: of the policy's random choices.
    usefulness: free dead values that no evicted value needs. False: as DTR does.
    replay_order: "memory" keeps the peak of a replay low; "recursive" is DTR's.
    max_replay_ratio: getting one op's arguments back may cost at most this many times the plain
        cost of all ops on record; more is an OutOfBudgetError. 0: no bound.
    block_size: bytes of the pool's segments, as `budget`. None: one segment.
    small_leaf_bytes: results of at most this many bytes are kept: the record of how to get them
        back costs more than they do.
    max_depth: longest chain of ops on record; a result beyond it becomes a leaf.
    evict_after_op: evict everything evictable after every op (for tests).
    cost_model: "measured" takes op times, "bytes" op sizes, which are the same in every run.
    trace: record what the program does to this file; see `recoup.trace`.
    decisions: keep what the engine decides, for `Run.decisions`; not together with `trace`.

    Raises ValueError or TypeError, saying what is allowed.
    """
    if trace is not None and decisions:
        raise ValueError("a run keeps a trace or its decisions, not both")
    limit_bytes = _C.physical_memory_bytes()
    budget_bytes = parse_bytes(budget, limit_bytes=limit_bytes)
    return Budget(
        Options(
            budget_bytes=budget_bytes,
            policy=policy,
            small_filter=small_filter,
            sampling=sampling,
            seed=seed,
            usefulness=usefulness,
            replay_order=replay_order,
            max_replay_ratio=max_replay_ratio,
            block_size_bytes=(
                0
                if block_size is None
                else parse_bytes(block_size, name="block_size", limit_bytes=limit_bytes)
            ),
            small_leaf_bytes=small_leaf_bytes,
            address_bytes=0,
            max_depth=max_depth,
            verify=verify,
            evict_after_op=evict_after_op,
            cost_model=cost_model,
        ),
        trace=None if trace is None else os.fspath(trace),
        decisions=decisions,
    )


def trace(path: str | os.PathLike[str]) -> Budget:
    """A scope that records what the program does to a file: `with ... as run:` or a decorator.

    The budget is the machine's memory, so that nothing is evicted. Every step of an optimizer is
    marked; `Run.mark_step` marks others. The file appears when the scope is left; `Trace.read` and
    `recoup simulate` take it. Raises OSError when it cannot be written.
    """
    return budget(_C.physical_memory_bytes(), trace=path)


@dataclasses.dataclass(frozen=True)
class Policy:
    """A row of `policies()`."""

    name: str
    """What `budget(policy=...)` takes."""
    summary: str
    """One line."""
    small_filter: bool
    """Whether its paper leaves out values below 1 % of the mean size."""
    sampling: bool
    """Whether its paper scores only about 2 sqrt(N) candidates."""


def policies() -> list[Policy]:
    """The policies there are, in the order of all tables."""
    return [Policy(*row) for row in _C.policies()]


def evict(tensor: torch.Tensor) -> bool:
    """Drops the bytes of the tensor's storage if they can be recomputed.

    Returns whether the storage is evicted now. The program cannot tell: the next op that needs the
    bytes gets them back.
    """
    return _C.evict(tensor)


def is_resident(tensor: torch.Tensor) -> bool:
    """Whether the tensor's storage has its bytes; true for tensors that no scope manages."""
    return _C.is_resident(tensor)


def materialize(tensor: torch.Tensor) -> None:
    """Recomputes the tensor's storage if it is evicted. It may be evicted again; see `pin`.

    Raises OutOfBudgetError when it does not fit.
    """
    _C.materialize(tensor)


@contextlib.contextmanager
def pin(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Inside the `with` block the tensor's storage is resident and stays in place.

    Raises OutOfBudgetError when it does not fit.
    """
    held = _C.pin(tensor)
    try:
        yield tensor
    finally:
        held.release()


def allow_replay(name: str) -> None:
    """Says that a custom op, "namespace::op", computes its outputs from its inputs and no more.

    Without it what the op writes is never evicted. Raises ValueError for text of another form.
    """
    namespace, _, op = name.partition("::")
    if not namespace or not op:
        raise ValueError(f"allow_replay takes the name of an op as 'namespace::op'; got {name!r}")
    _C.allow_replay(name)
