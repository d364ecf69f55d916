"""The output of `recoup suggest`."""

import argparse
import shlex
from collections.abc import Sequence

from recoup._memory.sizes import format_bytes
from recoup._reporting.report import format_ns
from recoup._reporting.tables import plain_table, print_table
from recoup.commands.budget_arguments import rule_flags
from recoup.offline.batch_size import LargestBatch
from recoup.offline.margins import Margin
from recoup.offline.suggestions import Prediction, Predictor, Suggestions
from recoup.offline.tier_use import DEFAULT_SPEED

_STOPPED = "stopped"
"""The mark of a simulation that was stopped because it became too slow."""


def print_suggestions(
    predictor: Predictor,
    found: Suggestions,
    without_tier: Sequence[Prediction] | None,
    other_bytes: int | None,
    options: argparse.Namespace,
) -> None:
    """Prints the table of predictions and its legend.

    without_tier: the predictions of the same budgets without the spill tier; None: no tier.
    other_bytes: resident bytes of the process other than tensors; None if unknown.
    """
    steady = predictor.steady
    steps = steady.marks
    print(
        f"A step runs {predictor.step_ops / steps:,.0f} ops in "
        f"{format_ns(predictor.plain_ns // steps)}, of which "
        f"{format_ns(predictor.step_ns // steps)} in ops. Without a budget, tensors take "
        f"{format_bytes(predictor.peak_bytes)}."
    )
    for note in notes_of(predictor):
        print(note)
    print()
    columns = ["budget", "of peak", "step time"]
    columns += [] if without_tier is None else [f"with {options.spill} on disk"]
    columns += [] if other_bytes is None else ["resident"]
    table = plain_table(*columns, "", texts=0)
    for index, one in enumerate(found.predictions):
        times = [one] if without_tier is None else [without_tier[index], one]
        cells = [one.budget, f"{one.fraction:.0%}", *map(_time, times)]
        if other_bytes is not None:
            resident = format_bytes(other_bytes + one.budget_bytes)
            cells.append(resident if one.status == "ok" else "")
        marks = {"knee": one == found.knee, "least": one == found.least}
        table.add_row(*cells, ", ".join(mark for mark, is_it in marks.items() if is_it))
    print_table(table)
    shown = [*found.predictions, *(without_tier or ())]
    _print_legend(shown, predictor, other_bytes, options)


def notes_of(predictor: Predictor) -> list[str]:
    """Sentences about what limits the predictions."""
    notes = []
    if predictor.steady.repeats == 1:
        notes.append("No two recorded steps ran the same ops, so no evictions can be planned.")
    if predictor.steady.repeats == 2:
        notes.append(
            "Only two recorded steps ran the same ops. A plan takes effect from the third such "
            "step on: record more with --steps."
        )
    if predictor.plain_is_measured and predictor.plain_ns < predictor.step_ns:
        notes.append(
            "A step without recoup took less time than its ops in the recording: the load of the "
            "machine has changed. Measure again."
        )
    return notes


def _time(one: Prediction) -> str:
    if one.status == "ok" and one.time_ratio is not None:
        return f"{one.time_ratio:.2f}x{'' if one.holds else ' ?'}"
    if one.status == "out of budget":
        return "-"
    return _STOPPED if one.time_ratio is None else f"{one.time_ratio:.0f}x: slow"


def _print_legend(
    shown: Sequence[Prediction],
    predictor: Predictor,
    other_bytes: int | None,
    options: argparse.Namespace,
) -> None:
    plain = "which was measured" if predictor.plain_is_measured else "estimated from the recording"
    print()
    print(f"step time: predicted, relative to a step without recoup, {plain}.", end="")
    seen = {one.status for one in shown}
    if "out of budget" in seen:
        print(" -: out of budget.", end="")
    slow = [one for one in shown if one.status == "too slow"]
    if any(one.time_ratio is not None for one in slow):
        print(f" slow: above {options.max_time_ratio:g}x.", end="")
    if any(one.time_ratio is None for one in slow):
        print(
            f" {_STOPPED}: the simulation was stopped at {options.max_time_ratio:g}x; it is not "
            "known whether the program fits.",
            end="",
        )
    if any(one.status == "ok" and not one.holds for one in shown):
        print(" ?: out of budget without plans, or if costs differ from the recorded ones.", end="")
    print()
    if options.spill is not None:
        print(f"with {options.spill} on disk: on a disk of {DEFAULT_SPEED} GB/s each way.")
    if predictor.slowest_ratio is not None:
        print(
            "Of the recorded steps that ran the same ops, the slowest took "
            f"{predictor.slowest_ratio:.2f}x the time of the fastest."
        )
    if other_bytes is not None:
        print(
            f"resident: the budget plus {format_bytes(other_bytes)} of other memory of the process."
        )


def print_commands(found: Suggestions, margin: Margin, options: argparse.Namespace) -> None:
    """Prints the commands for the knee and for the least budget, with their margin."""
    knee, least = found.suggested_knee, found.suggested_least
    if knee is None or least is None:
        return
    print(f"\n{margin.text()}")
    if knee != least:
        print("The knee, below which time rises fastest, plus the margin:")
        print(f"  {run_command(options, knee.budget)}")
    print("The least budget that was found to work, plus the margin:")
    print(f"  {run_command(options, least.budget)}")


def print_batch(found: LargestBatch, other_bytes: int | None, options: argparse.Namespace) -> None:
    """Prints the largest batch, its cost, and how reliable the prediction is."""
    largest, budget = found.largest, options.batch_size_for
    print(
        f"The largest batch in {budget} is {largest.batch}; the recorded batch is {options.batch}."
    )
    ratio = largest.prediction.time_ratio or 1.0
    print(
        f"A step then takes {ratio:.2f}x the time of its ops; the time per sample is "
        f"{largest.sample_time_ratio or 0.0:.2f}x that of the recorded batch without a budget."
    )
    print(
        f"Without a budget, this batch would take {format_bytes(largest.unbudgeted_peak_bytes)}.",
        end="",
    )
    if other_bytes is not None:
        resident = other_bytes + largest.prediction.budget_bytes
        print(f" With it, about {format_bytes(resident)} of the process are resident.", end="")
    print()
    if (above := found.smallest_too_large) is not None:
        reason: str = above.prediction.status
        if above.prediction.holds:
            reason = f"with its margin it is {above.larger_batch}, which does not fit"
        elif reason == "ok":
            reason = "out of budget if costs differ from the recorded ones"
        elif reason == "too slow":
            reason = f"slower than {options.max_time_ratio:g}x"
        print(f"A batch of {above.batch} is too large: {reason}.")
    if largest.batch != options.batch:
        print(
            f"This is an extrapolation from a batch of {options.batch}: it assumes that sizes and "
            "costs grow in proportion to the batch."
        )
    if options.lengths is not None:
        recorded, longest = options.lengths
        print(
            f"It is for inputs of length {longest}, and assumes that all recorded inputs have "
            f"length {recorded}. Shorter inputs take less memory."
        )
    print(largest.margin.text("This batch has"))
    print(f"A batch of {largest.larger_batch} completes the recorded steps, too.")
    print(f"\nWith a batch of {largest.batch}:\n  {run_command(options, budget)}")


def run_command(options: argparse.Namespace, budget: str) -> str:
    """The command of a run in `budget`, quoted for a shell."""
    command = ["recoup", "run", "--budget", budget]
    if options.policy != "planned":
        command += ["--policy", options.policy]
    if options.spill is not None:
        command += ["--spill", options.spill]
    command += rule_flags(options)
    command += ["-m"] if options.is_module else []
    return shlex.join([*command, *(options.program or ["SCRIPT"])])
