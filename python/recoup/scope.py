"""The public scopes: a budget, or a recording."""

import dataclasses
import os
import warnings
from collections.abc import Collection
from typing import get_args

import torch

from recoup import gpus
from recoup._memory.defaults import default_of
from recoup._memory.device_memory import free_bytes, memory_bytes, parse_size
from recoup._memory.fractions import ALSO_ALLOWED, parse_fraction
from recoup._memory.share_group import check_share
from recoup._memory.sizes import missing_unit, parse_bytes
from recoup._reporting.files import utf8_name
from recoup.budgets import Budget
from recoup.engine_options import engine_options
from recoup.hints import did_you_mean, hint_keywords
from recoup.known_names import ONLY_SIMULATED, core_policies
from recoup.options import Options, Profile, SimulationOptions
from recoup.rules import Rules
from recoup.setup import Setup
from recoup.warning import RecoupWarning

_OF_OPTIONS = {
    each.name: f"it is a field of recoup.Options: write options=recoup.Options({each.name}=...)"
    for each in dataclasses.fields(Options)
}


@hint_keywords(elsewhere=_OF_OPTIONS)
def budget(
    budget: int | str | None = None,
    *,
    device: torch.device | str | int | None = None,
    policy: str = "planned",
    spill: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    check_replays: bool = False,
    profile: Profile | Collection[Profile] | None = None,
    trace: str | os.PathLike[str] | None = None,
    adapt: bool = False,
    share: str | None = None,
    rules: Rules | None = None,
    options: Options | None = None,
) -> Budget:
    """Returns a scope in which tensor memory never exceeds `budget`.

    Use it as a context manager, `with recoup.budget("4GiB") as run:`, or as a decorator; each use
    makes a new `Run`.

    budget: size in bytes, or text such as "4GiB", "4g" or "500MB"; at most the memory that the
        process may take. A number below 64 KiB without a unit is taken as bytes, with a
        RecoupWarning. "60%", above 0 and at most 100 %: of the memory available to tensors
        when the scope begins. That memory is the free memory of the machine and of the process's
        cgroups, or of the GPU, plus the bytes of tensors that already exist; those are charged to
        the budget at once. "auto": all of that memory, less a reserve for memory that no tensor
        has; growth beyond the reserve is charged to the budget. Each `with`, and each call of a
        decorated function, determines the size anew. None: the environment variable RECOUP_BUDGET,
        or `budget` in the table [tool.recoup] of pyproject.toml; then `spill` is taken from
        RECOUP_SPILL or that table too, unless it is given. See docs/reference.md.
    device: the device whose memory is limited: "cpu", "cuda:0", or the index of a GPU. None: the
        current GPU if the program has already used CUDA, else the CPU. Each device can have one
        open scope.
    policy: name of the eviction policy, one of `policies()`.
    spill: capacity of the spill tier, in the units of `budget`: a file on a disk for the CPU,
        pinned host memory for a GPU. None: no spill tier. It takes values that recoup cannot
        recompute (parameters, gradients, optimizer state) or that are more expensive to recompute;
        they are read back when they are used. Tensors made before the scope can be spilled on the
        CPU only. See docs/spilling.md.
    spill_dir: directory of the spill tier's file, on a disk; for the CPU only. None: the system's
        directory for temporary files.
    check_replays: hash every output, and compare the output of every replay with its hash (slow).
        `recoup.verify` compares a whole program with plain PyTorch instead.
    profile: what the run records in addition, one or several of
        "modules": attribute memory and time to the program's modules, for `Run.report`,
        `Run.holders` and `Run.work`. Replaces `Module.__call__` while the scope is open; no module
        gets a hook, and results stay bitwise equal.
        "lines": the same as "modules", plus the program line that ran each op, which takes more
        time.
        "timeline": the same as "modules", plus the time of each event, for `Run.timeline` and
        `Run.page`. Inspects all values after each op.
        "decisions": keep the engine's decisions for `Run.decisions`; excludes `trace`.
    adapt: while the scope is open, reduce the budget when other processes take the machine's
        memory, before the kernel kills this one, and increase it again; never beyond `budget`, or
        for "auto" beyond the memory that the process may take. For the CPU. See
        `Run.budget_changes`.
    share: "node": `budget` is the budget of all processes of this machine that share it: the
        children of one parent, such as the ranks of torchrun. "group:name": all processes of this
        user that give this name. Memory that one process does not use is for the others; memory
        of worker processes is charged, too. For a size and the CPU. See `Run.shared_budget` and
        docs/processes.md.
    trace: file to which the program's ops are recorded; see `recoup.trace`.
    rules: what must not be evicted or spilled, by module; implies `profile="modules"`. A name that
        no called module has gives a RecoupWarning when the scope ends. See `Rules`.
    options: tuning and ablations. None: `Options()`.

    Raises ValueError or TypeError that says what is allowed, and RuntimeError if a GPU cannot have
    a budget. Entering the scope raises RuntimeError if the device has an open scope, if a
    percentage leaves nothing for tensors, if the system refuses the pool's addresses, or if nothing
    is left of a shared budget; OutOfBudgetError if existing tensors exceed a percentage; ValueError
    if the other processes share another size; and ValueError or OSError if there can be no spill
    tier or no file for a shared budget.
    """
    options = _checked(options)
    name, spill_name = "budget", "spill"
    if budget is None:
        budget, name = _default("budget")
        if spill is None and (found := default_of("spill")) is not None:
            spill, spill_name = found.value, found.source
    recorded = _recorded(profile)
    if trace is not None and "decisions" in recorded:
        raise ValueError('trace and profile="decisions" cannot be combined: give only one')
    on = gpus.parse_device(device)
    if (adapt or share is not None) and on.type != "cpu":
        raise ValueError(
            "adapt=True and share are for budgets of the CPU: leave them out for a GPU"
        )
    fraction = parse_fraction(budget, name=name)
    if share is not None:
        check_share(share)
        _check_shared(budget, is_size=fraction is None, adapts=adapt)
    _check_policy(policy, options.kinetic)
    _check_rules(rules, spills=spill is not None)
    made = engine_options(
        options,
        on,
        # A percentage becomes a size when the scope begins; until then use its upper bound.
        budget_bytes=memory_bytes(on)
        if fraction
        else parse_size(budget, on, name=name, also=ALSO_ALLOWED),
        policy=policy,
        check_replays=check_replays,
        spill_bytes=0 if spill is None else parse_bytes(spill, name=spill_name),
        spill_dir="" if spill_dir is None else _directory(spill_dir),
    )
    to = None if trace is None else utf8_name(trace)
    for what, size in (("budget", budget), ("spill", spill)):
        if size is not None and (doubt := missing_unit(size, what)) is not None:
            warnings.warn(doubt, RecoupWarning, stacklevel=3)
    return Budget(
        Setup(
            options=made,
            device=on,
            trace=to,
            decisions="decisions" in recorded,
            modules=bool(recorded - {"decisions"}) or rules is not None,
            rules=rules,
            lines="lines" in recorded,
            timeline="timeline" in recorded,
            fraction=fraction,
            adapts=adapt,
            shared_as=share,
        )
    )


def _check_shared(budget: object, *, is_size: bool, adapts: bool) -> None:
    if not is_size:
        raise ValueError(
            f"share needs a budget as a size such as '16GiB', since all processes must give the "
            f"same one; got {budget!r}"
        )
    if adapts:
        raise ValueError("share and adapt=True cannot be combined: leave one out")


def _default(setting: str) -> tuple[int | str, str]:
    found = default_of(setting)
    if found is None:
        raise TypeError(
            "recoup.budget needs a budget such as '4GiB': give one, or set RECOUP_BUDGET, or "
            "`budget` in the table [tool.recoup] of pyproject.toml"
        )
    return found.value, found.source


def _checked(options: Options | None) -> Options:
    if options is None:
        return Options()
    if isinstance(options, SimulationOptions):
        raise TypeError(
            "options must be a recoup.Options or None; got SimulationOptions: write "
            "options=recoup.Options(...), and give the policy and the tier to recoup.budget"
        )
    if not isinstance(options, Options):
        raise TypeError(
            f"options must be a recoup.Options or None; got {type(options).__name__}: write "
            "options=recoup.Options(...)"
        )
    return options


def _check_rules(rules: object, *, spills: bool) -> None:
    if rules is None:
        return
    if not isinstance(rules, Rules):
        raise TypeError(
            f"rules must be a recoup.Rules or None; got {type(rules).__name__}: write "
            "rules=recoup.Rules(...)"
        )
    if rules.spill_only is not None and not spills:
        raise ValueError("rules.spill_only needs a spill tier: give spill=SIZE")


def _recorded(profile: Profile | Collection[Profile] | None) -> set[str]:
    names: set[str] = {profile} if isinstance(profile, str) else set(profile or ())
    known = get_args(Profile)
    for name in names:
        if name not in known:
            raise ValueError(f"profile must be one or several of {', '.join(known)}; got {name!r}")
    return names


def _directory(path: str | os.PathLike[str]) -> str:
    name = os.fsdecode(path)
    if not name or "\0" in name:
        raise ValueError(f"spill_dir must be the path of a directory; got {name!r}")
    return name


def _check_policy(policy: str, kinetic: bool | None) -> None:
    known = core_policies().values()
    live = [each.name for each in known if not each.simulated]
    if not isinstance(policy, str):
        raise TypeError(f"policy must be a name such as 'planned'; got {type(policy).__name__}")
    if policy not in live:
        hint = did_you_mean(policy, live)
        if policy in core_policies():
            hint = f"; {policy} {ONLY_SIMULATED}"
        raise ValueError(f"policy {policy!r} is not one of {', '.join(live)}{hint}")
    with_order = [each.name for each in known if each.kinetic]
    if kinetic and policy not in with_order:
        raise ValueError(
            f"kinetic needs a policy that keeps its candidates in order: {', '.join(with_order)}; "
            f"got {policy!r}"
        )


@hint_keywords()
def trace(
    path: str | os.PathLike[str], *, device: torch.device | str | int | None = None
) -> Budget:
    """Returns a scope that records the program's ops to a file: a context manager or decorator.

    path: the trace file. It is written when the scope ends; `Trace.read` and `recoup simulate` read
        it.
    device: as in `recoup.budget`.

    The budget is the device's memory, so that nothing is evicted. On a GPU it is 15/16 of the
    largest budget, because the pool is allocated when the scope begins and CUDA needs memory for
    kernels that it loads later. Every optimizer step is marked; `Run.mark_step` marks other steps.
    Raises OSError if the file cannot be written.
    """
    on = gpus.parse_device(device)
    size = free_bytes(on)
    if on.type != "cpu":
        size -= size // 16
    return budget(size, device=on, trace=path)
