"""Pages of a scope's memory that are given back to the system, and faulted in again, in each step.

    OMP_NUM_THREADS=2 python bench/pages.py --json pages.json

A net of its original size is trained by AdamW in fractions of its peak. Its model is made before
the scope, so that its bytes are charged outside the scope's memory, or inside. Each training runs
in a process of its own. Prints a table in Markdown, of medians over the steady steps: the seconds
of a step, those of the process in the system, page faults, and the bytes given back. The first step
with optimizer state is not counted. The losses of all trainings are compared.
"""

import json
import resource
import statistics
import sys
import time
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from measure import add_json, parser_of, write_result

import recoup
from recoup.bench.harness.processes import call
from recoup.bench.harness.tables import print_markdown
from recoup.bench.harness.turns import in_turns
from recoup.bench.nets.real import real_net_named, real_net_names
from recoup.bench.nets.tiny import seeded

COUNTERS = ("given_back_bytes", "evictions", "replays", "replay_ns", "moved_bytes")
PLACES = ("inside", "outside")
FIRST = 3
"""The first steps, which are not counted."""


def measured(name: str, place: str, budget: str, steps: int) -> dict[str, Any]:
    """Trains in this process. An empty budget: without recoup."""
    net = real_net_named(name).net
    torch.manual_seed(0)
    model = net.make().train() if place == "outside" else None
    rows: list[dict[str, float]] = []
    losses: list[str] = []
    with recoup.budget(budget) if budget else nullcontext() as run:
        model = model or net.make().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        for step in range(steps):
            use, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            before = run.stats() if run else None
            loss = net.loss(model, net.batch(seeded(step)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
            del loss
            seconds, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
            row = {"seconds": seconds, "system": now.ru_stime - use.ru_stime}
            row["faults"] = now.ru_minflt - use.ru_minflt
            if run:
                after = run.stats()
                for key in COUNTERS:
                    row[key] = getattr(after, key) - getattr(before, key)
                row["peak_bytes"] = after.peak_bytes
            rows.append(row)
        del model, optimizer  # nothing has to be restored at the end
    return {"rows": rows, "losses": losses}


def in_process(*arguments: str) -> dict[str, Any]:
    return call([sys.executable, __file__, "--one", *arguments]).result()


COLUMNS = {
    "budget": "{budget}",
    "model": "{place}",
    "s a step": "{seconds:.2f}",
    "s in the system": "{system:.2f}",
    "page faults": "{faults:,.0f}",
    "given back": "{given_back_bytes:,.0fMB}",
    "evictions": "{evictions:,.0f}",
    "replays": "{replays:,.0f}",
    "ns in replays": "{replay_ns:,.0f}",
    "moved": "{moved_bytes:,.0fMB}",
}


def row_of(label: str, place: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of a case; without a budget, its counters are None."""
    steady = [row for one in found for row in one["rows"][FIRST:]]
    median = {key: statistics.median(row[key] for row in steady) for key in steady[0]}
    return {"budget": label, "place": place, **dict.fromkeys(COUNTERS), **median}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--net", default="gpt2", choices=real_net_names())
    parser.add_argument("--fractions", nargs="+", type=float, default=[1.0, 0.7, 0.5, 0.35])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1, help="repetitions, in turns")
    add_json(parser)
    parser.add_argument("--one", nargs=4, metavar=("NET", "PLACE", "BUDGET", "STEPS"))
    options = parser.parse_args()
    if options.one:
        name, place, budget, steps = options.one
        print(json.dumps(measured(name, place, budget, int(steps))))
        return
    net = options.net
    wide = in_process(net, "inside", "90%", "2")
    peak = int(wide["rows"][-1]["peak_bytes"])
    cases = [("plain", "-", "")]
    cases += [
        (f"{s:.0%}", place, str(int(s * peak))) for s in options.fractions for place in PLACES
    ]
    steps = str(options.steps)
    ways = {case: partial(in_process, net, case[1], case[2], steps) for case in cases}
    found = in_turns(options.rounds, ways)
    expected = found[cases[0]][0]["losses"]
    for case, results in found.items():
        assert all(one["losses"] == expected for one in results), f"{case}: other bits"
    rows = print_markdown(
        COLUMNS, (row_of(label, place, found[label, place, b]) for label, place, b in cases)
    )
    write_result(options.json, "pages", rows)


if __name__ == "__main__":
    main()
