"""Least budgets with and without results in place of operands.

    OMP_NUM_THREADS=1 python bench/in_place.py --real

Each small net of `recoup bench`, and with --real GPT-2 and U-Net at real size, is recorded for
two steps. Policy `recoup` is simulated, with a tier of 1 TiB and without, to find the least budget
in which all ops run and take at most ten times as long, within 2 %. Values have no addresses, as
fragmentation differs from run to run. Prints a table in Markdown: bytes, and the part that is
saved. The last columns are the replays in two fractions of the peak, without a tier; `=` if both
ways replay the same, `-` if the run does not fit.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from measure import add_json, find, parser_of, write_result

import recoup
from recoup.bench.harness.tables import print_markdown
from recoup.bench.nets import NETS, Net
from recoup.bench.simulated import bisect
from recoup.offline.traces import Simulation

FRACTIONS = (0.4, 0.3)


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
        recoup.SimulationOptions(
            policy="recoup",
            layout=False,
            max_time_ratio=10,
            spill="1TiB" if tier else None,
            reuse_operands=allowed,
        ),
    )


def least_budget(trace: recoup.Trace, allowed: bool, tier: bool) -> int:
    def works(budget: int) -> bool:
        result = simulate(trace, budget, allowed, tier)
        # The end of the recorded scope needs room for all tensors that are alive then.
        return result.status != "too slow" and result.stats.op_count == trace.op_count

    return bisect(0, trace.unbudgeted_peak_bytes(), works, resolution=1 / 50)[1]


COLUMNS = {
    "net": "{net}",
    **{
        f"{what}, {place}": f"{{{place}[{key}]:{form}}}"
        for place in ("tier", "no tier")
        for what, key, form in (
            ("least", "apart", ",.1fMB"),
            ("in place", "in_place", ",.1fMB"),
            ("saved", "saved", ".0%"),
        )
    },
    **{f"replays at {fraction:.0%}": f"{{replays[{fraction:.0%}]}}" for fraction in FRACTIONS},
}


def row_of(name: str, trace: recoup.Trace) -> dict[str, Any]:
    row: dict[str, Any] = {"net": name, "replays": {}}
    for place in ("tier", "no tier"):
        apart, in_place = (least_budget(trace, each, place == "tier") for each in (False, True))
        row[place] = {"apart": apart, "in_place": in_place, "saved": 1 - in_place / apart}
    for fraction in FRACTIONS:
        budget = int(trace.unbudgeted_peak_bytes() * fraction)
        runs = [simulate(trace, budget, allowed, False) for allowed in (False, True)]
        counts = [f"{each.stats.replays:,}" if each.status == "ok" else "-" for each in runs]
        same = counts[0] == counts[1]
        row["replays"][f"{fraction:.0%}"] = "=" if same else " / ".join(counts)
    return row


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--real", action="store_true", help="also GPT-2 and U-Net at real size")
    add_json(parser)
    args = parser.parse_args()
    named = [(net.name, net) for net in NETS]
    if args.real:
        named.append(("gpt2, 124M", find("real:gpt2")))
        named.append(("unet, width 32", find("real:unet")))
    with TemporaryDirectory() as folder:
        traces = ((name, recorded(net, Path(folder))) for name, net in named)
        rows = print_markdown(COLUMNS, (row_of(*each) for each in traces))
    write_result(args.json, "in place", rows)


if __name__ == "__main__":
    main()
