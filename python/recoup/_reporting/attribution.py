"""Attribution of a run's memory and time to the program's modules."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from torch.optim import Optimizer

from recoup import _C
from recoup._patching import module_names
from recoup._patching.module_names import MODULES, TENSORS
from recoup._reporting.moments import Moment, MomentKind
from recoup.rows import Holder, MemoryKind, ModuleWork, PinnedValue, why_pinned

# The order of HoldingKind and Phase in include/recoup/attribution.h.
_VALUE, _SOURCE, _WORKSPACE, _AHEAD, _OUTSIDE = range(5)
_FORWARD, _BACKWARD, _OPTIMIZER = range(3)
MOMENT_KINDS: tuple[MomentKind, ...] = ("op", "replay", "evict", "spill", "fetch", "move", "step")
"""Kinds in the order of LiveMoment::Kind."""


class Attribution:
    """The attribution of one run: installs its hooks while the scope is open, and gives results."""

    def __init__(self, engine: _C.Engine, *, lines: bool, timeline: bool) -> None:
        self._engine = engine
        self.timeline = timeline
        engine.attribute(lines=lines, step=timeline, moments=timeline)
        self._hooks = module_names.StepHooks(self._name_held, self._name_state)

    # ---- while the scope is open; each method is idempotent, and works without the others ----

    def enter(self, user: object) -> None:
        module_names.enter()
        module_names.PATCHES.install(user)
        self._hooks.add()

    def leave(self, user: object) -> None:
        self._hooks.remove()
        module_names.PATCHES.remove(user)

    def name_all(self) -> None:
        """Tells the engine the names of the tensors that modules hold at present."""
        self._engine.set_names(module_names.tensors())

    def _name_held(self, _: Optimizer) -> None:
        self.name_all()

    def _name_state(self, stepped: Optimizer) -> None:
        self._engine.set_names(module_names.state_of(stepped))

    # ---- results ----

    def result(self) -> "Result":
        """The attribution so far."""
        return Result(self._engine.attribution())


class Result:
    """The engine's attribution records, with names in place of its numbers."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._makers: list[dict[str, Any]] = raw["makers"]
        self._holdings: list[tuple[int, int, int, int]] = raw["holdings"]
        self.peak_bytes: int = raw["peak_bytes"]
        self.refusal: dict[str, Any] | None = raw["refusal"]
        self.step: dict[str, Any] | None = raw["step"]
        self.moments: list[tuple[int, int, int, int, int, int, int]] = raw["moments"]
        self._lines: list[str] = _C.program_lines()
        roots = {MODULES[row["module"]].root for row in self._makers if row["module"] >= 0}
        # An optimizer's name cannot be confused with a module's.
        tops = {MODULES[row["module"]].root for row in self._makers if row["phase"] == _OPTIMIZER}
        self._several = len(roots - tops) > 1

    def module_name(self, number: int) -> str:
        """The module's qualified name; of an outermost module its class. -1: empty (no module).

        If there are several outermost modules, the name begins with the outermost one's class.
        """
        if number < 0:
            return ""
        _, path, kind = MODULES[number]
        if not path:
            return kind
        return f"{kind}.{path}" if self._several else path

    def op(self, maker: int) -> str:
        return str(self._makers[maker]["op"]) if maker >= 0 else ""

    def line(self, maker: int) -> str:
        """'file:line (function)'; empty if it is not known."""
        number = self._makers[maker]["line"] if maker >= 0 else -1
        return self._lines[number] if number >= 0 else ""

    def tensor_name(self, name: int) -> str:
        """The name as in `named_parameters`; empty for -1."""
        return TENSORS[name].name if name >= 0 else ""

    def module(self, maker: int, name: int = -1) -> str:
        """Name of the module of a tensor name, or else of a maker."""
        if name >= 0:
            return self.module_name(TENSORS[name].module)
        return self.module_name(self._makers[maker]["module"]) if maker >= 0 else ""

    def kind(self, maker: int, name: int = -1, *, source: bool = False) -> MemoryKind:
        """Kind of the memory of a tensor name, or else of a maker's results."""
        if name >= 0:
            return TENSORS[name].kind  # type: ignore[return-value]
        if maker < 0:
            return "inputs"
        row = self._makers[maker]
        if row["phase"] == _BACKWARD:
            return "gradients"
        if row["phase"] == _OPTIMIZER:
            return "optimizer"
        return "inputs" if source and row["module"] < 0 else "activations"

    def _kind_of(self, holding: int, maker: int, name: int) -> MemoryKind:
        if holding == _WORKSPACE:
            return "workspace"
        if holding in (_AHEAD, _OUTSIDE):
            return "other"
        return self.kind(maker, name, source=holding == _SOURCE)

    def holders(self, *, each: bool = False) -> list[Holder]:
        """Memory charged at the peak: rows of a module and a kind, largest first.

        The bytes of all rows add up to the peak.
        each: also separate rows by op, name and line.
        """
        return self.rows_of(self._holdings, each=each)

    def rows_of(
        self, holdings: Iterable[tuple[int, int, int, int]], *, each: bool = False
    ) -> list[Holder]:
        """The rows of `holders` for the memory charged at another moment."""
        sums: defaultdict[tuple[str, MemoryKind, tuple[str, ...]], list[int]]
        sums = defaultdict(lambda: [0, 0])
        for holding, size, maker, name in holdings:
            outside = holding in (_AHEAD, _OUTSIDE)
            module = "" if outside else self.module(maker, name)
            parts: tuple[str, ...] = ()
            if each:
                made_by = "" if outside else self.op(maker)
                parts = (made_by, self.tensor_name(name), self.line(maker))
            total = sums[module, self._kind_of(holding, maker, name), parts]
            total[0] += size
            total[1] += 1
        rows = []
        for (module, kind, parts), (size, count) in sums.items():
            of = dict(zip(("op", "name", "line"), parts, strict=each))
            rows.append(Holder(module=module, kind=kind, bytes=size, values=count, **of))
        return sorted(rows, key=lambda row: -row.bytes)

    @property
    def outside_bytes(self) -> int:
        """Bytes taken before the scope began, which are charged all the time."""
        return sum(size for holding, size, _, _ in self._holdings if holding == _OUTSIDE)

    def pinned_row(self, row: Mapping[str, Any]) -> PinnedValue:
        """A row of `_C.Engine.pinned()` with names instead of numbers."""
        maker, name = row["maker"], row["name"]
        return PinnedValue(
            bytes=row["bytes"],
            by=row["by"],
            why=why_pinned(row),
            op=row["op"] or self.op(maker),
            module=self.module(maker, name),
            kind=self.kind(maker, name, source=row["by"] == "non-recomputable"),
            name=self.tensor_name(name),
        )

    def holding_lines(self) -> list[dict[str, Any]]:
        """Memory charged at the peak: rows of a program `line`, its `bytes` and `values`.

        Largest first; empty if lines were not recorded.
        """
        sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for _, size, maker, _ in self._holdings:
            if line := self.line(maker):
                sums[line][0] += size
                sums[line][1] += 1
        rows = [
            {"line": line, "bytes": size, "values": count} for line, (size, count) in sums.items()
        ]
        return sorted(rows, key=lambda row: -row["bytes"])

    def timeline(self) -> list[Moment]:
        """All events in order."""
        return list(map(self.moment, self.moments))

    def moment(self, row: tuple[int, int, int, int, int, int, int]) -> Moment:
        """The event of one row of `moments`, or of those of `step`."""
        kind, start, cost, size, charged, maker, step = row
        return Moment(
            kind=MOMENT_KINDS[kind],
            name=f"step {step}" if MOMENT_KINDS[kind] == "step" else self.op(maker),
            start_ns=start,
            cost_ns=cost,
            charged_bytes=charged,
            module=self.module(maker),
            size_bytes=size,
        )

    def work(self) -> list[ModuleWork]:
        """Work done for each module, its backward ops included, longest first."""
        counts = ("ops", "op_ns", "replays", "replay_ns", "evictions", "evicted_bytes")
        sums: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(counts, 0))
        for maker in self._makers:
            total = sums[self.module_name(maker["module"])]
            for count in counts:
                total[count] += maker[count]
        rows = [ModuleWork(module=module, **total) for module, total in sums.items()]
        return sorted(rows, key=lambda row: -(row.op_ns + row.replay_ns))
