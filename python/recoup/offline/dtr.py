"""Logs of the DTR authors under the rules of their own simulator, to compare with their figures."""

import os

from recoup.offline import _C
from recoup.offline.dtr_log import DtrInstruction, apply_dtr_log
from recoup.offline.traces import Simulation, check_budget
from recoup.stats import Stats


class DtrProgram:
    """A log of the DTR authors under the rules of their simulator: no pool, views are replayed.

    docs/research/dtr.md describes the rules. To run a log in recoup's engine use
    `read_dtr_log`.
    """

    def __init__(self, program: _C.DtrProgram) -> None:
        self._program = program

    @staticmethod
    def read(path: str | os.PathLike[str]) -> "DtrProgram":
        """Reads a log. Raises OSError, or ValueError with the line."""
        made = _ProgramImport()
        apply_dtr_log(path, made.apply)
        return DtrProgram(made.finish())

    @property
    def op_count(self) -> int:
        """Number of ops of the program, views included."""
        return self._program.op_count()

    def unbudgeted_peak_bytes(self) -> int:
        """Peak bytes if every storage, constants included, is freed with its last name.

        Constants stay in a simulation, so a budget of this size may still need evictions.
        """
        return self._program.peak_bytes()

    def simulate(
        self, budget_bytes: int, *, policy: str = "dtr", max_time_ratio: float = 2.0
    ) -> Simulation:
        """Runs the log in a budget, with one of `dtr_policies`.

        max_time_ratio: the run ends as "too slow" if it costs more than this multiple of the
            program's own ops; the authors use 2. 0: no bound.

        Raises ValueError for an unknown policy or a budget below 1. A budget that is too small is a
        result, not an error.
        """
        check_budget(budget_bytes)
        row = self._program.simulate(
            policy=policy, budget_bytes=budget_bytes, max_time_ratio=max_time_ratio
        )
        stats = Stats.from_engine(row.pop("stats"))
        return Simulation(
            policy=policy, budget_bytes=budget_bytes, stats=stats, decisions=[], **row
        )


def dtr_policies() -> list[str]:
    """The six policies of the paper's figures, then the other scores of its ablation.

    `dtr` is cost over size and staleness; `dtr-eq` and `dtr-local` have other costs. Each has the
    variants `-no-size`, `-no-staleness` and `-only-cost`; `no-cost` is 1 over size and staleness.
    """
    return _C.dtr_policies()


class _ProgramImport:
    """Builds a program. Tensors are numbers in the program; names refer to tensors."""

    def __init__(self) -> None:
        self._begin()
        self.started = False

    def _begin(self) -> None:
        self.program = _C.DtrProgram()
        # Released names stay, because the end keeps tensors in the order in which names appeared.
        self.tensor_of: dict[str, int] = {}
        self.holders: list[int] = []
        self.sizes: list[int] = []  # of the tensors' storages

    def finish(self) -> _C.DtrProgram:
        """Ends the program, which keeps all tensors that still have a name."""
        for tensor in self.tensor_of.values():
            if self.holders[tensor] > 0:
                self.program.keep(tensor)
        return self.program

    def apply(self, made: DtrInstruction) -> None:
        match made.kind:
            case "CONSTANT":
                size = made.results[0].size_bytes
                self._add(made.name, self.program.add_constant(size), size)
            case "CALL":
                self._add_call(made)
            case "MUTATE":
                self._add_mutation(made)
            case "COPY":
                self._hold(made.name, self.tensor_of[made.source])
            case "COPY_FROM":
                source = self.tensor_of[made.source]
                self._release(self.tensor_of[made.name])
                self._hold(made.name, source)
            case "RELEASE":
                # A name that is missing was made before the start.
                if made.name in self.tensor_of:
                    self._release(self.tensor_of[made.name])
            case "ANNOTATE" if made.name == "START" and not self.started:
                self._begin()
                self.started = True

    def _add(self, name: str, tensor: int, size_bytes: int) -> None:
        self.tensor_of[name] = tensor
        self.holders.append(1)
        self.sizes.append(size_bytes)

    def _hold(self, name: str, tensor: int) -> None:
        self.program.hold(tensor)
        self.tensor_of[name] = tensor
        self.holders[tensor] += 1

    def _release(self, tensor: int) -> None:
        self.program.release(tensor)
        self.holders[tensor] -= 1

    def _add_call(self, op: DtrInstruction) -> None:
        arguments = [self.tensor_of[name] for name in op.arguments]
        outputs = [(result.size_bytes, result.alias) for result in op.results]
        tensors = self.program.add_op(op.name, op.cost_ns, arguments, outputs)
        for result, tensor in zip(op.results, tensors, strict=True):
            size = result.size_bytes if result.alias < 0 else self.sizes[arguments[result.alias]]
            self._add(result.name, tensor, size)

    def _add_mutation(self, op: DtrInstruction) -> None:
        """Makes new storages for the written arguments, whose names then refer to them."""
        arguments = [self.tensor_of[name] for name in op.arguments]
        sizes = [self.sizes[arguments[place]] for place in op.written]
        tensors = self.program.add_op(
            op.name, op.cost_ns, arguments, [(size, -1) for size in sizes]
        )
        for place, tensor, size in zip(op.written, tensors, sizes, strict=True):
            self._add(op.arguments[place], tensor, size)
            self._release(arguments[place])
