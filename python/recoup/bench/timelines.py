"""Memory over the last step of a training, simulated from its trace: one panel per case."""

from collections.abc import Iterator
from pathlib import Path

from recoup._reporting.files import write_atomically
from recoup.bench.runner import Plan, recorded
from recoup.offline.timeline_picture import Timeline, draw_timelines, last_step
from recoup.offline.traces import Trace
from recoup.options import SimulationOptions

MOST = 12
"""Maximum number of panels in a picture."""


def draw(plan: Plan, path: Path) -> Iterator[str]:
    """Draws the plan's cases, and announces each for a progress bar. Needs matplotlib.

    Raises ValueError if a case does not complete in simulation.
    """
    panels = []
    for name in plan.nets:
        yield f"{name}: recording"
        trace = recorded(name, plan)
        cases = [case[1:] for case in plan.cases() if case[0] == name]
        panels += [_panel(trace, name, policy, fraction) for policy, fraction in cases]
    write_atomically(path, draw_timelines(panels, path.suffix[1:]))


def _panel(trace: Trace, net: str, policy: str, fraction: float) -> Timeline:
    peak = trace.unbudgeted_peak_bytes()
    budget = max(1, int(fraction * peak))
    result = trace.simulate(budget, SimulationOptions(policy=policy))
    if result.status != "ok":
        raise ValueError(
            f"{net} with policy {policy} in {fraction:.3g} of its peak: "
            f"{result.reason or result.status}"
        )
    step = last_step(trace.timeline(budget, SimulationOptions(policy=policy)))
    costs = {
        kind: sum(moment.cost_ns for moment in step if moment.kind == kind)
        for kind in ("op", "replay")
    }
    ratio = (costs["op"] + costs["replay"]) / costs["op"]
    title = f"{net}, {policy}, {100 * fraction:g}% of {peak / 1e6:.1f} MB: {ratio:.2f}x compute"
    return Timeline(title, step, budget)
