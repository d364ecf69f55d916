"""Least budgets with and without results in place of operands.

    OMP_NUM_THREADS=1 python bench/in_place.py --real

Each small net of `recoup bench`, and with --real GPT-2 and U-Net at real size, is recorded for
two steps. Policy `recoup` is simulated, with a tier of 1 TiB and without, to find the least budget
in which all ops run and take at most ten times as long, within 2 %. Values have no addresses, as
fragmentation differs from run to run. Prints a table in Markdown: bytes, and the share that is
saved. The last columns are the replays in two shares of the peak, without a tier; `=` if both ways
replay the same, `-` if the run does not fit.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from measure import print_markdown, write_result

import recoup
from recoup.bench.nets.net import Net
from recoup.bench.nets.real import real_net_named
from recoup.bench.nets.small import NETS
from recoup.offline.traces import Simulation

SHARES = (0.4, 0.3)


def recorded(net: Net, folder: Path) -> recoup.Trace:
    path = folder / f"{net.name}.rtrace"
    torch.manual_seed(0)
    with recoup.trace(path):
        model = net.make()
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
        for step in range(2):
            batch = net.batch(torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            net.loss(model, batch).backward()
            optimizer.step()
    return recoup.Trace.read(path)


def simulate(trace: recoup.Trace, budget: int, allowed: bool, tier: bool) -> Simulation:
    return trace.simulate(
        budget,
        policy="recoup",
        layout=False,
        max_time_ratio=10,
        spill="1TiB" if tier else None,
        options=recoup.Options(reuse_operands=allowed),
    )


def least_budget(trace: recoup.Trace, allowed: bool, tier: bool) -> int:
    low, high = 0, trace.unbudgeted_peak_bytes()
    while high - low > high / 50:
        middle = (low + high) // 2
        result = simulate(trace, middle, allowed, tier)
        # The end of the recorded scope needs room for all tensors that are alive then.
        if result.status != "too slow" and result.stats.op_count == trace.op_count:
            high = middle
        else:
            low = middle
    return high


def row_of(name: str, trace: recoup.Trace) -> dict[str, str]:
    row = {"net": name}
    for tier in (True, False):
        apart, in_place = (least_budget(trace, allowed, tier) for allowed in (False, True))
        label = "tier" if tier else "no tier"
        row[f"least, {label}"] = f"{apart / 1e6:,.1f} MB"
        row[f"in place, {label}"] = f"{in_place / 1e6:,.1f} MB"
        row[f"saved, {label}"] = f"{1 - in_place / apart:.0%}"
    for share in SHARES:
        budget = int(trace.unbudgeted_peak_bytes() * share)
        runs = [simulate(trace, budget, allowed, False) for allowed in (False, True)]
        counts = [f"{each.stats.replays:,}" if each.status == "ok" else "-" for each in runs]
        row[f"replays at {share:.0%}"] = "=" if counts[0] == counts[1] else " / ".join(counts)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Least budgets with results in place.")
    parser.add_argument("--real", action="store_true", help="also GPT-2 and U-Net at real size")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    named = [(net.name, net) for net in NETS]
    if options.real:
        named.append(("gpt2, 124M", real_net_named("gpt2").net))
        named.append(("unet, width 32", real_net_named("unet").net))
    with tempfile.TemporaryDirectory() as folder:
        rows = print_markdown(row_of(name, recorded(net, Path(folder))) for name, net in named)
    write_result(options.json, "in place", rows)


if __name__ == "__main__":
    main()
