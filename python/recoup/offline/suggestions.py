"""Which budgets a program runs in, and what a step takes there: predicted from one trace."""

import os
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from recoup._memory.sizes import parse_bytes, short_size
from recoup.offline.overheads import Overheads
from recoup.offline.trace_file import OpRecord, Record, step_ends, step_times_ns, trace_of
from recoup.offline.traces import Simulation, Status, Trace
from recoup.run import CostModel

LADDER = range(100, 0, -10)
"""Percents of the unbudgeted peak."""
_ALIKE = 0.9  # of the ops of two steps
_RESOLUTION = 0.01  # of the peak, for the least budget
# A busy machine measures costs that are off by so much: what is suggested must fit there too.
_NOISES = (None, (1, 30.0), (2, 30.0))


@dataclass(frozen=True)
class SteadyStep:
    """The steps that a long training repeats: one, or one of each optimizer."""

    first_mark: int
    """The number of the mark where they begin."""
    last_mark: int
    """The number of the mark where they end."""
    repeats: int
    """How often in a row, to the last mark, exactly the same ops ran."""

    @property
    def marks(self) -> int:
        """The number of marks in it: 1, or more where optimizers take turns."""
        return self.last_mark - self.first_mark


@dataclass(frozen=True)
class Prediction:
    """What a budget would do."""

    budget: str
    """As `recoup run --budget` takes it."""
    budget_bytes: int
    share: float
    """Of the unbudgeted peak."""
    status: Status
    """Of the whole trace, and of the steady step."""
    holds: bool
    """Whether it is "ok", and completes without plans too, and if costs differ from the record."""
    reason: str
    """Why it is not "ok"; else empty."""
    time_ratio: float | None
    """Of the steady step: its time in this budget over its time without recoup. None: it is not
    reached."""
    replays: int
    """In the whole trace."""
    spill_peak_bytes: int
    """The most that the spill tier holds."""


@dataclass(frozen=True)
class Suggestions:
    """What a ladder of budgets and a search below it have found."""

    predictions: list[Prediction]
    """From the largest budget down."""
    knee: Prediction | None
    """See `knee_of`. None: no budget that was tried holds."""
    least: Prediction | None
    """The least budget that holds; None likewise."""
    suggested_knee: Prediction | None = None
    """The knee with a margin, which is what users are told to take; see recoup.offline.margins."""
    suggested_least: Prediction | None = None
    """The same of the least budget."""


def steady_step(records: Sequence[Record]) -> SteadyStep:
    """The shortest round of steps that ran twice at the end, by the names of nine ops in ten.

    A loader with workers, say, is not in every step as far ahead. The last step if nothing ran
    twice. Raises ValueError for a trace with less than two steps.
    """
    steps = _ops_of_steps(records)
    count = len(steps)
    if count < 2:
        raise ValueError(
            f"{count} step{'' if count == 1 else 's'} ended in it, and 2 are needed: a step of an "
            "optimizer marks its end, and run.mark_step() does in a scope of recoup.trace()"
        )
    for period in range(1, count // 2 + 1):
        rounds = [steps[end - period : end] for end in range(count, period - 1, -period)]
        if all(map(_are_alike, rounds[0], rounds[1])):
            repeats = 1
            while repeats < len(rounds) and rounds[repeats] == rounds[0]:
                repeats += 1
            return SteadyStep(max(0, count - period - 1), count - 1, repeats)
    return SteadyStep(count - 2, count - 1, 1)


def _repetition_times(steps_ns: Sequence[float], steady: SteadyStep) -> list[float]:
    """The time of each repetition of the steady step, from the times of all steps."""
    ends = range(steady.last_mark, 0, -steady.marks)[: steady.repeats]
    return [sum(steps_ns[end - steady.marks + 1 : end + 1]) for end in ends if end >= steady.marks]


def _are_alike(one: list[int], other: list[int]) -> bool:
    shared = (Counter(one) & Counter(other)).total()
    return shared >= _ALIKE * max(len(one), len(other))


def _ops_of_steps(records: Sequence[Record]) -> list[list[int]]:
    """The names of the ops of each whole step."""
    steps = []
    start = 0
    for end in step_ends(records):
        steps.append([op.name for op in records[start:end] if isinstance(op, OpRecord)])
        start = end
    return steps


class Predictor:
    """Simulates a trace as a live run would go: a step has a plan only when two like it ended.

    max_time_ratio: a run, or a steady step, that costs more than so many times its own ops is
        "too slow".
    spill, cost_model: as `recoup.budget` takes them.
    overheads: what recoup itself takes on this machine; None: not measured, and left out.
    plain_steps_ns: the time of each step of a run without recoup, if there was one. Each of its
        steps is compared with the same step of the recording, except for the first one, which warms
        up. The median of these ratios relates the steady step to one without recoup. Without
        such a run, that is the time of the recording less what the recording took.
    The time of a step in a budget is that of the recording, the median by the clock, with recoup's
    time for each op in a budget in place of that in a recording. Added are the costs of replays and
    of copies to and from the spill tier, moves within the pool, recoup's time for each replay, and
    the time that the engine takes in the simulation to choose victims and to make room. Of a
    recording without times, made by an older version, the ops alone count.
    Raises ValueError for a trace with less than two steps, and where nothing takes memory.
    """

    def __init__(
        self,
        records: Sequence[Record],
        *,
        policy: str = "planned",
        max_time_ratio: float = 10.0,
        spill: str | None = None,
        cost_model: CostModel = "measured",
        overheads: Overheads | None = None,
        plain_steps_ns: Sequence[int] = (),
    ) -> None:
        self.steady = steady_step(records)
        ends = step_ends(records)
        before, behind = ends[self.steady.first_mark], ends[self.steady.last_mark]
        self.trace = trace_of(records)
        """All that was recorded."""
        self._before = trace_of(records[:before])
        has_tail = any(isinstance(record, OpRecord) for record in records[behind:])
        self._until = trace_of(records[:behind]) if has_tail else None
        self._policy, self._spill, self._cost_model = policy, spill, cost_model
        self._max_time_ratio = max_time_ratio
        self.peak_bytes = self.trace.unbudgeted_peak_bytes()
        if self.peak_bytes == 0:
            raise ValueError(
                "the program allocates no memory for tensors, so there is nothing to budget (of "
                "threads that the program starts, recoup sees only those in recoup.carry())"
            )
        ops = [op for op in records[before:behind] if isinstance(op, OpRecord)]
        self.step_ops = len(ops)
        """Ops of the steady step."""
        self.step_ns = sum(op.cost_ns for op in ops)
        """What they cost."""
        self._overheads = overheads or Overheads()
        self._is_measured = cost_model == "measured"
        self._has_overheads = self._is_measured and overheads is not None
        clocks_ns = step_times_ns(records)
        steps_ns = self._unevicted_steps_ns(records, clocks_ns)
        repetitions = _repetition_times(steps_ns, self.steady)
        first, last = self.steady.first_mark + 1, self.steady.last_mark + 1
        self._unevicted_ns = statistics.median(repetitions or [sum(steps_ns[first:last])])
        pairs = list(zip(steps_ns, plain_steps_ns, strict=False))[1:]
        ratios = [step / plain for step, plain in pairs if plain > 0]
        own_ns = self.step_ops * self._overheads.op_ns
        estimated_ns = max(self._unevicted_ns - own_ns, 1.0)
        measured_ns = self._unevicted_ns / statistics.median(ratios) if ratios else 0.0
        self.plain_ns = max(round(measured_ns or estimated_ns), 1)
        """What the steady step takes without recoup."""
        self.plain_is_measured = measured_ns > 0
        """Whether that was measured, and not estimated from the recording."""
        is_timed = self._is_measured and None not in clocks_ns and len(repetitions) > 1
        self.slowest_ratio = max(repetitions) / max(min(repetitions), 1) if is_timed else None
        """The time of the slowest repetition of the steady step over that of the fastest one. None:
        fewer than two were timed."""

    def _unevicted_steps_ns(
        self, records: Sequence[Record], clocks_ns: Sequence[int | None]
    ) -> list[float]:
        """The time of each whole step in a budget in which nothing is evicted."""
        ends = step_ends(records)
        found = []
        for start, end, clock in zip([0, *ends], ends, clocks_ns, strict=False):
            ops = [op for op in records[start:end] if isinstance(op, OpRecord)]
            without = float(sum(op.cost_ns for op in ops))
            if clock is not None and self._is_measured:
                without = max(without, clock - len(ops) * self._overheads.recording_op_ns)
            found.append(without + len(ops) * self._overheads.op_ns)
        return found

    def predict(self, budget: str) -> Prediction:
        """Of a size such as "1.4GiB"."""
        budget_bytes = parse_bytes(budget)
        run, processor_share = self._simulate_timed(budget_bytes)
        status, reason, ratio = run.status, run.reason, None
        if status == "ok":
            until = run if self._until is None else self._simulate(self._until, budget_bytes)
            before = self._simulate(self._before, budget_bytes)
            eviction_ns = processor_share * self._eviction_ns(run)
            evicting_ns = self._extra_ns(until, eviction_ns) - self._extra_ns(before, eviction_ns)
            evicting_ns = max(evicting_ns, 0.0)
            ratio = (self._unevicted_ns + evicting_ns) / self.plain_ns
            if ratio > self._max_time_ratio > 0:
                status = "too slow"
        if status == "too slow":
            reason = f"it takes more than {self._max_time_ratio:g} times as long"
        return Prediction(
            budget=budget,
            budget_bytes=budget_bytes,
            share=budget_bytes / self.peak_bytes,
            status=status,
            holds=status == "ok" and self._holds(budget_bytes),
            reason=reason,
            time_ratio=ratio,
            replays=run.stats.replays,
            spill_peak_bytes=run.stats.spill_peak_bytes,
        )

    def _simulate_timed(self, budget_bytes: int) -> tuple[Simulation, float]:
        """Of the whole trace; and in what share of the time a processor was at it.

        Many simulations run side by side, on a machine that may have fewer processors for them.
        """
        wall_ns, processor_ns = time.perf_counter_ns(), time.thread_time_ns()
        run = self._simulate(self.trace, budget_bytes)
        wall_ns, processor_ns = (
            time.perf_counter_ns() - wall_ns,
            time.thread_time_ns() - processor_ns,
        )
        return run, min(1.0, processor_ns / max(wall_ns, 1))

    def _eviction_ns(self, run: Simulation) -> float:
        """The engine's time per eviction, in the simulation: it makes the choices of a live run."""
        stats = run.stats
        if not self._has_overheads or stats.evictions == 0:
            return 0.0
        return (stats.search_ns + stats.bookkeeping_ns) / stats.evictions

    def _extra_ns(self, run: Simulation, eviction_ns: float) -> float:
        """What evictions cost the run in all."""
        extra = float(run.replay_cost_ns + run.spill_cost_ns)
        stats, overheads = run.stats, self._overheads
        if self._is_measured:
            extra += stats.replays * overheads.replay_ns
            extra += stats.moved_bytes * overheads.moved_byte_ns
            extra += stats.evictions * eviction_ns
        return extra

    def _holds(self, budget_bytes: int) -> bool:
        noises = _NOISES if self._cost_model == "measured" else (None,)
        return all(
            self._simulate(self.trace, budget_bytes, noise=noise, planning="off").status == "ok"
            for noise in noises
        )

    def _simulate(
        self,
        trace: Trace,
        budget_bytes: int,
        *,
        noise: tuple[int, float] | None = None,
        planning: str = "background",
    ) -> Simulation:
        return trace.simulate(
            budget_bytes,
            policy=self._policy,
            max_time_ratio=self._max_time_ratio,
            plan_ahead=False,
            noise=noise,
            planning=planning,
            spill=self._spill,
            cost_model=self._cost_model,
        )


def suggest(predictor: Predictor) -> Suggestions:
    """Tries a ladder of budgets, then halves the interval below the least one that holds.

    A budget is suggested only if it holds. Memory in pieces lets some fit where a larger one does
    not, so a smaller one than the least that was found may do.
    """
    peak = predictor.peak_bytes
    ladder = dict.fromkeys(short_size(max(1, peak * percent // 100)) for percent in LADDER)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # a simulation holds no interpreter lock
        predictions = list(pool.map(predictor.predict, ladder))
    if any(one.holds for one in predictions):
        least = min(one.budget_bytes for one in predictions if one.holds)
        below = max(
            (one.budget_bytes for one in predictions if one.budget_bytes < least), default=0
        )
        while least - below > _RESOLUTION * peak:
            tried = predictor.predict(short_size((least + below) // 2))
            if not below < tried.budget_bytes < least:  # sizes are written with three digits
                break
            predictions.append(tried)
            if tried.holds:
                least = tried.budget_bytes
            else:
                below = tried.budget_bytes
    predictions.sort(key=lambda one: -one.budget_bytes)
    good = [one for one in predictions if one.holds]
    return Suggestions(
        predictions=predictions,
        knee=knee_of(good),
        least=good[-1] if good else None,
    )


_FLAT = 0.01  # of the time of a step


def knee_of(predictions: Sequence[Prediction]) -> Prediction | None:
    """Where less memory begins to cost much: the point farthest below the chord.

    This is Kneedle (Satopaa, Albrecht, Irwin, Raghavan: Finding a "Kneedle" in a Haystack, 2011)
    without its smoothing: shares and ratios are scaled to 0..1, and the chord goes from the least
    budget to the largest. Where all times are within 1 %, it is the least budget. Of points that
    are equally far, the smaller budget.
    """
    points = [(one.share, one.time_ratio) for one in predictions if one.time_ratio is not None]
    if not points or len(points) != len(predictions):
        return None
    shares, ratios = zip(*points, strict=True)
    width, height = max(shares) - min(shares), max(ratios) - min(ratios)
    least = min(predictions, key=lambda one: one.share)
    if height < _FLAT or width == 0:
        return least

    def below_chord(one: Prediction) -> tuple[float, float]:
        x = (one.share - min(shares)) / width
        y = ((one.time_ratio or 0.0) - min(ratios)) / height
        return (1 - x) - y, -x

    return max(predictions, key=below_chord)
