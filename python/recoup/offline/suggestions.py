"""Budgets in which a program runs, and the time of a step in each: predicted from one trace."""

import copy
import dataclasses
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recoup._memory.sizes import parse_bytes, short_size
from recoup.offline.in_threads import in_threads
from recoup.offline.overheads import Overheads
from recoup.offline.trace_steps import Steps, first_events
from recoup.offline.traces import Simulation, Status, Trace, TracedOp
from recoup.options import CostModel, Planning, SimulationOptions

LADDER = range(100, 0, -10)
"""Percentages of the unbudgeted peak that are tried."""
_ALIKE = 0.9  # fraction of ops that two like steps have in common
_RESOLUTION = 0.01  # of the least budget, as a fraction of the peak
# A busy machine distorts measured costs this much: a suggested budget must work then, too.
_NOISES = (None, (1, 30.0), (2, 30.0))


@dataclass(frozen=True)
class SteadyStep:
    """The steps that a long training repeats: one, or one of each optimizer."""

    first_mark: int
    """Index of the mark at which they begin."""
    last_mark: int
    """Index of the mark at which they end."""
    repeats: int
    """Number of times in a row, up to the last mark, that exactly the same ops ran."""

    @property
    def marks(self) -> int:
        """Number of marks in it: 1, or more if optimizers take turns."""
        return self.last_mark - self.first_mark


@dataclass(frozen=True)
class Prediction:
    """The predicted outcome of a run in a budget."""

    budget: str
    """Value of `recoup run --budget`."""
    budget_bytes: int
    fraction: float
    """Size as a fraction of the unbudgeted peak."""
    status: Status
    """Status of the whole trace and of the steady step."""
    holds: bool
    """Whether it is "ok", and also completes without plans and with costs that differ from the
    recorded ones."""
    reason: str
    """Why it is not "ok"; else empty."""
    time_ratio: float | None
    """Time of the steady step in this budget over its time without recoup. None: the step is not
    reached."""
    replays: int
    """Number of replays in the whole trace."""
    spill_peak_bytes: int
    """Maximum bytes in the spill tier."""
    written_step_bytes: int | None = None
    """Bytes that a step writes to the spill tier: a mean over the steps of the steady step. None:
    the step is not reached."""
    read_step_bytes: int | None = None
    """Bytes that a step reads from it."""


@dataclass(frozen=True)
class Suggestions:
    """Results for a ladder of budgets, and of a search below it."""

    predictions: list[Prediction]
    """Sorted by budget, largest first."""
    knee: Prediction | None
    """See `knee_of`. None: no budget that was tried holds."""
    least: Prediction | None
    """The least budget that holds; None: no budget that was tried holds."""
    suggested_knee: Prediction | None = None
    """The knee with a margin, which is recommended to users; see recoup.offline.margins."""
    suggested_least: Prediction | None = None
    """The least budget with a margin."""


def steady_step(trace: Steps) -> SteadyStep:
    """The shortest round of steps that ran twice at the end and had 90 % of op names in common.

    Steps can differ a little, for example by how far a loader with workers is ahead. The last step
    if no round ran twice. Raises ValueError for a trace with less than two steps.
    """
    steps = [[op.name for op in step] for step in trace.complete]
    count = len(steps)
    if count < 2:
        raise ValueError(
            f"{count} step{'' if count == 1 else 's'} in the trace, but 2 are needed: an "
            "optimizer step marks the end of a step, and so does run.mark_step() in a scope of "
            "recoup.trace()"
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


def _are_alike(one: list[str], other: list[str]) -> bool:
    shared = (Counter(one) & Counter(other)).total()
    return shared >= _ALIKE * max(len(one), len(other))


class Predictor:
    """Simulates a trace like a live run, where a step has a plan only after two like it have ended.

    max_time_ratio: a run, or a steady step, that costs more than this multiple of its own ops is
        "too slow".
    spill, cost_model: as in `recoup.budget`.
    overheads: recoup's own time on this machine; None: not measured, and ignored.
    plain_steps_ns: time of each step of a run without recoup, if there was one. Each of its steps
        but the first, which warms up, is compared with the same step of the recording. The median
        of these ratios relates the steady step to one without recoup. Without such a run that time
        is the recording's less its overhead.
    on_simulation: called after each simulation, on any thread.
    The predicted time of a step starts from the median clock time in the recording, with recoup's
    time for each op in a budget in place of that in a recording. Added are the costs of replays and
    of copies to and from the spill tier, moves within the pool, recoup's time for each replay, and
    the time that the engine takes in the simulation to choose victims and to make room. A recording
    without times (of steps that were reordered) counts the costs of ops alone.
    Raises ValueError for a trace with less than two steps, and if no op takes memory.
    """

    def __init__(
        self,
        trace: Trace,
        *,
        policy: str = "planned",
        max_time_ratio: float = 10.0,
        spill: str | None = None,
        cost_model: CostModel = "measured",
        overheads: Overheads | None = None,
        plain_steps_ns: Sequence[int] = (),
        on_simulation: Callable[[], None] = lambda: None,
    ) -> None:
        steps = Steps(trace)
        self.steady = steady_step(steps)
        before, after = steps.ends[self.steady.first_mark], steps.ends[self.steady.last_mark]
        self.trace = first_events(trace, len(steps.events))
        """The whole trace, without plans."""
        self._before = first_events(trace, before)
        has_tail = steps.ops_before[after] < len(steps.ops)
        self._until = first_events(trace, after) if has_tail else None
        self._policy, self._spill, self._cost_model = policy, spill, cost_model
        self._spill_bandwidth: tuple[float, float] | None = None
        self._max_time_ratio = max_time_ratio
        self._on_simulation = on_simulation
        self.peak_bytes = self.trace.unbudgeted_peak_bytes()
        if self.peak_bytes == 0:
            raise ValueError(
                "the program allocates no tensor memory, so no budget can be suggested (recoup "
                "does not see other processes, or threads that were not started by Python)"
            )
        ops = steps.ops_between(before, after)
        self.step_ops = len(ops)
        """Number of ops in the steady step."""
        self.step_ns = sum(op.cost_ns for op in ops)
        """Cost of these ops."""
        self._overheads = overheads or Overheads()
        self._is_measured = cost_model == "measured"
        self._has_overheads = self._is_measured and overheads is not None
        clocks_ns = steps.times_ns()
        steps_ns = self._unevicted_steps_ns(steps.complete, clocks_ns)
        repetitions = _repetition_times(steps_ns, self.steady)
        first, last = self.steady.first_mark + 1, self.steady.last_mark + 1
        self._unevicted_ns = statistics.median(repetitions or [sum(steps_ns[first:last])])
        pairs = list(zip(steps_ns, plain_steps_ns, strict=False))[1:]
        ratios = [step / plain for step, plain in pairs if plain > 0]
        own_ns = self.step_ops * self._overheads.op_ns
        estimated_ns = max(self._unevicted_ns - own_ns, 1.0)
        measured_ns = self._unevicted_ns / statistics.median(ratios) if ratios else 0.0
        self.plain_ns = max(round(measured_ns or estimated_ns), 1)
        """Time of the steady step without recoup."""
        self.plain_is_measured = measured_ns > 0
        """Whether it was measured, and not estimated from the recording."""
        is_timed = self._is_measured and None not in clocks_ns and len(repetitions) > 1
        self.slowest_ratio = max(repetitions) / max(min(repetitions), 1) if is_timed else None
        """Time of the slowest repetition of the steady step over that of the fastest. None: fewer
        than two were timed."""

    def _unevicted_steps_ns(
        self, steps: Sequence[Sequence[TracedOp]], clocks_ns: Sequence[int | None]
    ) -> list[float]:
        """Time of each complete step in a budget without evictions."""
        found = []
        for ops, clock in zip(steps, clocks_ns, strict=True):
            without = float(sum(op.cost_ns for op in ops))
            if clock is not None and self._is_measured:
                without = max(without, clock - len(ops) * self._overheads.recording_op_ns)
            found.append(without + len(ops) * self._overheads.op_ns)
        return found

    def with_tier_speed(self, gb_per_second: float) -> "Predictor":
        """A predictor of the same trace with a spill tier that copies at another speed."""
        other = copy.copy(self)
        other._spill_bandwidth = (gb_per_second, gb_per_second)
        return other

    def predict(self, budget: str) -> Prediction:
        """The prediction for a size such as "1.4GiB"."""
        prediction = self.predict_time(budget)
        holds = prediction.status == "ok" and self._holds(prediction.budget_bytes)
        return dataclasses.replace(prediction, holds=holds)

    def predict_time(self, budget: str) -> Prediction:
        """As `predict`, but does not try whether the budget holds: `holds` is False."""
        budget_bytes = parse_bytes(budget)
        run, processor_fraction = self._simulate_timed(budget_bytes)
        status, reason, ratio = run.status, run.reason, None
        written = read = None
        if status == "ok":
            until = run if self._until is None else self._simulate(self._until, budget_bytes)
            before = self._simulate(self._before, budget_bytes)
            eviction_ns = processor_fraction * self._eviction_ns(run)
            evicting_ns = self._extra_ns(until, eviction_ns) - self._extra_ns(before, eviction_ns)
            evicting_ns = max(evicting_ns, 0.0)
            ratio = (self._unevicted_ns + evicting_ns) / self.plain_ns
            steps = self.steady.marks
            written = (until.stats.spilled_bytes - before.stats.spilled_bytes) // steps
            read = (until.stats.fetched_bytes - before.stats.fetched_bytes) // steps
            if ratio > self._max_time_ratio > 0:
                status = "too slow"
        if status == "too slow":
            reason = f"it is more than {self._max_time_ratio:g} times slower"
        return Prediction(
            budget=budget,
            budget_bytes=budget_bytes,
            fraction=budget_bytes / self.peak_bytes,
            status=status,
            holds=False,
            reason=reason,
            time_ratio=ratio,
            replays=run.stats.replays,
            spill_peak_bytes=run.stats.spill_peak_bytes,
            written_step_bytes=written,
            read_step_bytes=read,
        )

    def _simulate_timed(self, budget_bytes: int) -> tuple[Simulation, float]:
        """A simulation of the whole trace, and the fraction of its time that a processor ran it.

        Many simulations run in parallel, possibly on fewer processors.
        """
        wall_ns, processor_ns = time.perf_counter_ns(), time.thread_time_ns()
        run = self._simulate(self.trace, budget_bytes)
        wall_ns, processor_ns = (
            time.perf_counter_ns() - wall_ns,
            time.thread_time_ns() - processor_ns,
        )
        return run, min(1.0, processor_ns / max(wall_ns, 1))

    def _eviction_ns(self, run: Simulation) -> float:
        """The engine's time per eviction in the simulation, which makes a live run's choices."""
        stats = run.stats
        if not self._has_overheads or stats.evictions == 0:
            return 0.0
        return (stats.search_ns + stats.bookkeeping_ns) / stats.evictions

    def _extra_ns(self, run: Simulation, eviction_ns: float) -> float:
        """Total cost of evictions to the run."""
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
        planning: Planning = "background",
    ) -> Simulation:
        simulated = trace.simulate(
            budget_bytes,
            SimulationOptions(
                policy=self._policy,
                max_time_ratio=self._max_time_ratio,
                plan_ahead=False,
                noise=noise,
                spill=self._spill,
                spill_bandwidth=self._spill_bandwidth,
                planning=planning,
                cost_model=self._cost_model,
            ),
        )
        self._on_simulation()
        return simulated


def suggest(predictor: Predictor) -> Suggestions:
    """Tries a ladder of budgets, then bisects the interval below the least one that holds.

    A budget is suggested only if it holds. Because of fragmentation some budget may hold where a
    larger one does not, so a budget below the result may hold as well.
    """
    peak = predictor.peak_bytes
    ladder = dict.fromkeys(short_size(max(1, peak * percent // 100)) for percent in LADDER)
    predictions = list(in_threads(predictor.predict, ladder, os.cpu_count()))
    if any(one.holds for one in predictions):
        least = min(one.budget_bytes for one in predictions if one.holds)
        below = max(
            (one.budget_bytes for one in predictions if one.budget_bytes < least), default=0
        )
        while least - below > _RESOLUTION * peak:
            tried = predictor.predict(short_size((least + below) // 2))
            if not below < tried.budget_bytes < least:  # sizes have three digits only
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
    """The knee of time over memory: the point farthest below the chord.

    This is Kneedle (Satopaa, Albrecht, Irwin, Raghavan: Finding a "Kneedle" in a Haystack, 2011)
    without its smoothing: fractions and ratios are scaled to 0..1, and the chord goes from the
    least budget to the largest. If all times are within 1 %, the knee is the least budget. Of
    points at the same distance it is the smaller budget.
    """
    points = [(one.fraction, one.time_ratio) for one in predictions if one.time_ratio is not None]
    if not points or len(points) != len(predictions):
        return None
    fractions, ratios = zip(*points, strict=True)
    width, height = max(fractions) - min(fractions), max(ratios) - min(ratios)
    least = min(predictions, key=lambda one: one.fraction)
    if height < _FLAT or width == 0:
        return least

    def below_chord(one: Prediction) -> tuple[float, float]:
        x = (one.fraction - min(fractions)) / width
        y = ((one.time_ratio or 0.0) - min(ratios)) / height
        return (1 - x) - y, -x

    return max(predictions, key=below_chord)
