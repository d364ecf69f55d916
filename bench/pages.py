"""Pages of a scope's memory that are given back to the system, and faulted in again, in each step.

    OMP_NUM_THREADS=2 python bench/pages.py --json pages.json

A net of its original size is trained by AdamW in shares of its peak. Its model is made before the
scope, so that its bytes are charged outside the scope's memory, or inside. Each training runs in a
process of its own. Prints a table in Markdown, of medians over the steady steps: the seconds of
a step, those of the process in the system, page faults, and the bytes given back. The first step
with optimizer state is not counted. The losses of all trainings are compared.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from measure import print_markdown, write_result

import recoup
from recoup.bench.nets.real import real_net_named, real_net_names
from recoup.bench.nets.tiny import seeded

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
                for key in ("given_back_bytes", "evictions", "replays", "replay_ns", "moved_bytes"):
                    row[key] = getattr(after, key) - getattr(before, key)
                row["peak_bytes"] = after.peak_bytes
            rows.append(row)
        del model, optimizer  # nothing has to be restored at the end
    return {"rows": rows, "losses": losses}


def in_process(*arguments: str) -> dict[str, Any]:
    worker = subprocess.run(
        [sys.executable, __file__, "--one", *arguments], capture_output=True, text=True
    )
    assert worker.returncode == 0, worker.stderr[-2000:]
    result: dict[str, Any] = json.loads(worker.stdout)
    return result


def row_of(label: str, place: str, found: dict[str, Any]) -> dict[str, str]:
    steady = found["rows"][FIRST:]
    median = {key: statistics.median(row[key] for row in steady) for key in steady[0]}
    return {
        "budget": label,
        "model": place,
        "s a step": f"{median['seconds']:.2f}",
        "s in the system": f"{median['system']:.2f}",
        "page faults": f"{median['faults']:,.0f}",
        "given back": f"{median.get('given_back_bytes', 0) / 1e6:,.0f} MB",
        "evictions": f"{median.get('evictions', 0):,.0f}",
        "replays": f"{median.get('replays', 0):,.0f}",
        "s in replays": f"{median.get('replay_ns', 0) / 1e9:.2f}",
        "moved": f"{median.get('moved_bytes', 0) / 1e6:,.0f} MB",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", default="gpt2", choices=real_net_names())
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0, 0.7, 0.5, 0.35])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1, help="repetitions, in turns")
    parser.add_argument("--json", type=Path, metavar="FILE")
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
    cases += [(f"{s:.0%}", place, str(int(s * peak))) for s in options.shares for place in PLACES]
    found: list[dict[str, Any]] = [{"rows": []} for _ in cases]
    for _ in range(options.rounds):
        for case, all_found in zip(cases, found, strict=True):
            one = in_process(net, case[1], case[2], str(options.steps))
            assert all_found.setdefault("losses", one["losses"]) == one["losses"]
            assert found[0]["losses"] == one["losses"], f"{case}: other bits"
            all_found["rows"] += one["rows"] if not all_found["rows"] else one["rows"][FIRST:]
    rows = print_markdown(
        row_of(label, place, each) for (label, place, _), each in zip(cases, found, strict=True)
    )
    write_result(options.json, "pages", rows)


if __name__ == "__main__":
    main()
