"""Runs typical trainings of users in budgets, each in its own process, several at a time.

    programs.py SETTINGS          all, as a check of the first hour
    programs.py SETTINGS NAME     one of them: prints its result as JSON

Bits that differ from a plain training's are a failure if two plain trainings are equal.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import workers
from rows import report, settings
from training import PLAIN_DIFFER, comparison
from trainings import Train, Training, all_trainings

import gpu
import recoup
from recoup._memory.device_memory import free_bytes, outside_bytes
from recoup.bench.flat_options import split

PERCENTS = (85, 70, 55, 40)
"""Budgets, in percent of the peak without evictions."""
AT_A_TIME = 8
SECONDS = 100
"""Time limit of one training."""
DOUBLE_BYTES = 2 << 30
"""Memory of the test device."""
SKIPPED = "skipped"
IN_REHEARSAL = ("chain, AdamW fused=True", "chain, spill tier", "gradient penalty", "DDP")


def equal(ours: list[torch.Tensor], plain: list[torch.Tensor]) -> bool:
    bits = [
        [each.contiguous().reshape(-1).view(torch.uint8) for each in of] for of in (ours, plain)
    ]
    return len(ours) == len(plain) and all(map(torch.equal, *bits))


def compare(run: Train, device: torch.device, options: dict[str, Any]) -> dict[str, Any]:
    """A row of the page. `lowest` is the smallest percentage in which the training completed."""
    plain = run()
    repeats = equal(run(), plain)
    with recoup.budget(free_bytes(device) // AT_A_TIME, device=device) as ample:
        same = equal(run(), plain)
    stats = ample.stats()
    room = stats.peak_bytes - stats.external_bytes
    row: dict[str, Any] = {
        "peak MiB": room / gpu.MIB,
        "lowest": "none",
        "evictions": 0,
        "replays": 0,
    }
    for percent in PERCENTS:
        budget = room * percent // 100 + outside_bytes(device)
        if budget < gpu.LEAST_BYTES:  # 40 % of a tiny training may be
            row["below"] = f"{percent} % are less than a budget can be"
            break
        try:
            with recoup.budget(budget, device=device, **split(options)) as short:
                same = equal(run(), plain) and same
        except recoup.OutOfBudgetError as error:
            row["below"] = str(error).splitlines()[0]
            print(error, flush=True)
            break
        stats = short.stats()
        row["lowest"] = f"{percent} %"
        row["evictions"] += stats.evictions
        row["replays"] += stats.replays
    if row["lowest"] == "none":
        row["bits"] = "not compared: out of budget in all of them"
    else:
        row["bits"] = comparison(same, repeats)
    return row


def one(training: Training, given: dict[str, Any]) -> dict[str, Any]:
    device = gpu.open_device(given["device"], DOUBLE_BYTES)
    gpu.make_repeatable(training.strict)
    made = training.make(device, given["rehearsal"])
    if isinstance(made, str):
        return {"bits": SKIPPED, "reason": made}
    return compare(made, device, training.options)


def in_own_process(name: str, training: Training) -> tuple[str, dict[str, Any]]:
    environment = {"HF_HUB_OFFLINE": "1"} | training.environment
    command = (sys.executable, __file__, sys.argv[1], name)
    ended = workers.run(name, command, SECONDS, environment)
    if ended.reason:
        return name, {"bits": "none", "reason": ended.reason[:300]}
    row = ended.result()
    if row.get("lowest") == "none":
        print(ended.output, flush=True)
    return name, row


def main() -> int:
    given = settings()
    trainings = dict(all_trainings())
    if len(sys.argv) > 2:
        print(json.dumps(one(trainings[sys.argv[2]], given)), flush=True)
        os._exit(0)  # NCCL may wait for other processes at exit
    if given["rehearsal"]:
        trainings = {name: trainings[name] for name in IN_REHEARSAL}
    failed = []
    with ThreadPoolExecutor(min(AT_A_TIME, max(1, gpu.cores() // 2))) as pool:
        for name, row in pool.map(lambda each: in_own_process(*each), trainings.items()):
            report(name, **row)
            if row["bits"] not in ("equal", SKIPPED, PLAIN_DIFFER):
                failed.append(name)
    if failed:
        print(f"{len(failed)} of {len(trainings)} trainings failed: {', '.join(failed)}"[:1000])
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
