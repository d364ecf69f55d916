"""The scopes that users open: a budget, or a recording."""

import os
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from recoup import _C, gpus
from recoup._memory.device_memory import free_bytes, memory_bytes, parse_size
from recoup._memory.share_text import ALSO_ALLOWED, parse_share
from recoup._memory.sizes import missing_unit, parse_bytes
from recoup._reporting.files import utf8_name
from recoup.budgets import Budget
from recoup.run import (
    CostModel,
    InPlace,
    Placement,
    Planning,
    ReplayOrder,
    Setup,
)
from recoup.warning import RecoupWarning

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "dtr": {"policy": "dtr", "in_place": "copy", "placement": "best-fit"},
        "dte": {"policy": "dte", "in_place": "copy", "placement": "best-fit"},
        "coop": {"policy": "coop", "in_place": "share", "placement": "two-ended"},
    }
)
"""The published systems, as arguments: `recoup.budget("4GiB", **recoup.PRESETS["dtr"])`.

What their policies choose, how they write in place and where they put what. Moves, the order of
replays and the rest are ours.
"""


def budget(
    budget: int | str,
    *,
    device: torch.device | str | int | None = None,
    policy: str = "planned",
    verify: bool = False,
    small_filter: bool | None = None,
    sampling: bool | None = None,
    kinetic: bool | None = None,
    seed: int = 1033096058,
    usefulness: bool = True,
    replay_order: ReplayOrder = "memory",
    max_replay_ratio: float = 10.0,
    block_size: int | str | None = None,
    small_result_bytes: int = 1024,
    max_depth: int = 10000,
    evict_after_op: bool = False,
    cost_model: CostModel = "measured",
    planning: Planning = "background",
    in_place: InPlace = "share",
    placement: Placement = "two-ended",
    move_ns_per_byte: float | None = None,
    spill: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    trace: str | os.PathLike[str] | None = None,
    decisions: bool = False,
    modules: bool = False,
    stacks: bool = False,
    timeline: bool = False,
) -> Budget:
    """A scope in which tensor memory never exceeds `budget`: `with ... as run:` or a decorator.

    budget: bytes, or text such as "4GiB", "4g" or "500MB", at most the memory that the process may
        take. A number below 64 KiB that has no unit is taken as bytes, with a RecoupWarning.
        "60%": that share of what tensors may have when the scope begins, above 0 and at most 100:
        of the bytes that are free then in the machine and in the process's cgroups, or on the GPU,
        and of those of tensors that exist already, which are charged to the budget at once.
        "auto": all of that, less a reserve for what is no tensor; if more comes to that later, the
        budget is charged for it. Each `with`, and each call of what it decorates, decides anew.
        See docs/budgets.md.
    device: whose memory: "cpu", "cuda:0", or the index of a GPU. None: the current GPU when the
        program uses GPUs by now, else the CPU. One scope can be open on each device.
    policy: chooses what to evict; a name of `policies()`.
    verify: hash every output and compare every replay with it (slow).
    small_filter, sampling: do not consider values below 1 % of the mean size; score only about
        2 sqrt(N) candidates. None: as the policy's paper has them.
    kinetic: keep the candidates in the order of their scores, so that the choice is that of all of
        them and few are looked at; then nothing is sampled. See `Policy.kinetic`. None: on for
        `recoup` and `planned`, unless they are to sample.
    seed: of the policy's random choices.
    usefulness: free dead values that no evicted value needs. False: as DTR does.
    replay_order: "memory" keeps the peak of a replay low; "recursive" is DTR's.
    max_replay_ratio: getting one op's arguments back may cost at most this many times the plain
        cost of all ops on record; more is an OutOfBudgetError. 0: no bound.
    block_size: bytes of the pool's segments, as `budget`. None: one segment.
    small_result_bytes: results of at most this many bytes are kept: the record of how to get them
        back costs more than they do.
    max_depth: longest chain of ops on record; the result of a longer one is non-recomputable.
    evict_after_op: evict everything evictable after every op (for tests).
    cost_model: "measured" takes op times, of each kind of op the median of the last 8 measurements;
        "bytes" takes op sizes, which are the same in every run.
    planning: of the policy `planned`, when evictions are planned for a step that repeats: "wait" at
        its end, so that decisions are the same in equal runs; "background" beside the program;
        "off" never.
    in_place: "share" writes where the bytes are and recomputes what was there, as Coop; "copy"
        writes to a copy, as DTR and DTE.
    placement: "two-ended" puts results of expensive ops at the other end of the pool than those of
        cheap ones, as Coop; "best-fit" does not tell them apart.
    move_ns_per_byte: what a byte costs to move in the pool, beside what it costs to evict others
        instead. None: as measured on this machine; 0.1 where costs are not measured.
    spill: a spill tier of this size, as `budget`: of the CPU on a disk, of a GPU in pinned
        memory of the host; None: none. What recoup cannot compute again (parameters, gradients,
        the optimizer's state, if they are made inside the scope), or not as cheaply, is written
        there and read when it is used.
    spill_dir: a directory on that disk, for the CPU. None: the system's for temporary files.
    trace: record what the program does to this file; see `recoup.trace`.
    decisions: keep what the engine decides, for `Run.decisions`; not together with `trace`.
    modules: keep for which module memory is held and time is spent, for `Run.report`,
        `Run.holders` and `Run.work`. `Module.__call__` is replaced meanwhile; no module gets a
        hook, and no bit changes.
    stacks: the same, and the line of the program that ran each op, which takes longer.
    timeline: the same as `modules`, and what happens when, for `Run.timeline` and `Run.page`.
        After each op all values are looked at.

    Raises ValueError or TypeError, saying what is allowed; RuntimeError where there can be no
    budget on a GPU, saying what to do. The scope raises RuntimeError when it begins and a share
    leaves nothing for tensors.
    """
    if trace is not None and decisions:
        raise ValueError("trace and decisions exclude each other: give only one of them")
    on = gpus.parse_device(device)
    share = parse_share(budget)
    block_size_bytes = 0
    if block_size is not None:
        block_size_bytes = parse_size(block_size, on, name="block_size")
    options = _C.Options(
        # Of a share the most that it can be, until the scope begins.
        budget_bytes=memory_bytes(on) if share else parse_size(budget, on, also=ALSO_ALLOWED),
        policy=policy,
        small_filter=small_filter,
        sampling=sampling,
        kinetic=kinetic,
        seed=seed,
        usefulness=usefulness,
        replay_order=replay_order,
        max_replay_ratio=max_replay_ratio,
        block_size_bytes=block_size_bytes,
        small_result_bytes=small_result_bytes,
        max_depth=max_depth,
        verify=verify,
        evict_after_op=evict_after_op,
        cost_model=cost_model,
        planning=planning,
        in_place=in_place,
        placement=placement,
        move_ns_per_byte=move_ns_per_byte,
        spill_bytes=0 if spill is None else parse_bytes(spill, name="spill"),
        spill_dir="" if spill_dir is None else _directory(spill_dir),
    )
    _check_policy(policy, kinetic)
    to = None if trace is None else utf8_name(trace)
    if (doubt := missing_unit(budget)) is not None:
        warnings.warn(doubt, RecoupWarning, stacklevel=2)
    return Budget(
        Setup(
            options=options,
            device=on,
            trace=to,
            decisions=decisions,
            modules=modules or stacks or timeline,
            stacks=stacks,
            timeline=timeline,
            share=share,
        )
    )


def _directory(path: str | os.PathLike[str]) -> str:
    name = os.fsdecode(path)
    if not name or "\0" in name:
        raise ValueError(f"spill_dir must be the path of a directory; got {name!r}")
    return name


def _check_policy(policy: str, kinetic: bool | None) -> None:
    rows = _C.policies()
    live = [row[0] for row in rows if not row[5]]
    if policy not in live:
        raise ValueError(f"policy must be one of {', '.join(live)}; got {policy!r}")
    with_order = [row[0] for row in rows if row[6]]
    if kinetic and policy not in with_order:
        raise ValueError(
            f"kinetic needs a policy that keeps its candidates in order: {', '.join(with_order)}; "
            f"got {policy!r}"
        )


def trace(
    path: str | os.PathLike[str], *, device: torch.device | str | int | None = None
) -> Budget:
    """A scope that records what the program does to a file: `with ... as run:` or a decorator.

    The budget is the device's memory, so that nothing is evicted. On a GPU it is 15/16 of the
    largest budget: it is allocated when the scope begins, and CUDA needs memory for kernels that it
    loads later.
    Every step of an optimizer is marked; `Run.mark_step` marks others. The file appears when the
    scope is left; `Trace.read` and `recoup simulate` take it. Raises OSError when it cannot be
    written.
    """
    on = gpus.parse_device(device)
    size = free_bytes(on)
    if on.type != "cpu":
        size -= size // 16
    return budget(size, device=on, trace=path)
