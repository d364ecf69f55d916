"""Draws docs/chart.png, some nets of docs/bench.json, which `make bench` made.

python bench/chart.py
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

DOCS = Path(__file__).resolve().parents[1] / "docs"
NETS = ["resnet50", "unet", "gpt2"]
COLOURS = ("#1f6fb4", "#d1602b", "#3c8d5a", "#7a5aa6", "#8c6d31", "#b0417a", "#5a5a5a")
MOST = 4.0  # slower points are cut off


def draw(axes: Axes, rows: list[dict[str, Any]], policies: list[str]) -> None:
    """One net; a line a policy, which ends where the next smaller budget does not do."""
    for policy, colour in zip(policies, COLOURS, strict=False):
        points = sorted(
            (100 * row["share"], row["time_ratios"]) for row in rows if row["policy"] == policy
        )
        shares = [share for share, _ in points]
        low, middle, high = ([of(ratios) for _, ratios in points] for of in (min, median, max))
        axes.plot(shares, middle, marker="o", markersize=3.5, color=colour, label=policy)
        axes.fill_between(shares, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("budget, % of what plain PyTorch takes", fontsize=8)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DOCS / "bench.json")
    parser.add_argument("--out", type=Path, default=DOCS / "chart.png")
    parser.add_argument("--nets", nargs="+", default=NETS)
    args = parser.parse_args()
    result = json.loads(args.data.read_text(encoding="utf-8"))
    rows = [row for row in result["rows"] if row["net"] in args.nets and row["status"] == "ok"]
    policies = list(dict.fromkeys(row["policy"] for row in rows))

    figure, panels = plt.subplots(
        1, len(args.nets), figsize=(3.9 * len(args.nets), 3.3), dpi=100, sharey=True, squeeze=False
    )
    for axes, net in zip(panels[0], args.nets, strict=True):
        draw(axes, [row for row in rows if row["net"] == net], policies)
        axes.set_title(f"{net} ({result['peaks'][net] / 1e6:.0f} MB)", fontsize=9)
        axes.invert_xaxis()
    first = panels[0][0]
    slowest = max(row["time_ratio"] for row in rows)
    first.set_ylim(0, min(MOST, 1.1 * slowest))
    first.set_ylabel("time of a step, plain = 1", fontsize=8)
    first.legend(frameon=False, loc="upper left", fontsize=8)
    versions = result["settings"]
    threads = f"{versions['threads']} thread{'s' if versions['threads'] > 1 else ''}"
    figure.suptitle(
        f"torch {versions['torch']}, {threads}; the bits are equal at every point",
        fontsize=8,
    )
    figure.tight_layout()
    # No time or version in the file: the same data gives the same picture.
    figure.savefig(args.out, metadata={"Software": None})


if __name__ == "__main__":
    main()
