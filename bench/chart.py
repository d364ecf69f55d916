"""Draws docs/chart.png from docs/chart.json, a result of bench/budgets.py.

python bench/chart.py
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

DOCS = Path(__file__).resolve().parents[1] / "docs"
LABELS = {
    "example_char_gpt": "character GPT",
    "example_digits_resnet": "ResNet with BatchNorm",
}
COLOURS = ("#1f6fb4", "#d1602b", "#3c8d5a", "#7a5aa6", "#8c6d31", "#b0417a", "#5a5a5a")
MOST = 4.0  # slower points are cut off


def draw(axes: Axes, rows: list[dict[str, Any]], policies: list[str]) -> None:
    """One net; a line a policy, which ends where the next smaller budget does not fit."""
    for policy, colour in zip(policies, COLOURS, strict=False):
        points = sorted(
            (100 * row["budget_share"], row["time_ratio"])
            for row in rows
            if row["policy"] == policy and row["feasible"]
        )
        shares = [share for share, _ in points]
        low, middle, high = ([ratio[key] for _, ratio in points] for key in ("q1", "median", "q3"))
        axes.plot(shares, middle, marker="o", markersize=3.5, color=colour, label=policy)
        axes.fill_between(shares, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    peak = rows[0]["unbudgeted_peak_bytes"] / 1e6
    axes.set_title(f"{LABELS.get(rows[0]['net'], rows[0]['net'])} ({peak:.0f} MB)", fontsize=9)
    axes.set_xlabel("budget, % of what plain PyTorch takes", fontsize=8)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DOCS / "chart.json")
    parser.add_argument("--out", type=Path, default=DOCS / "chart.png")
    args = parser.parse_args()
    result = json.loads(args.data.read_text(encoding="utf-8"))
    rows = result["rows"]
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    nets = list(dict.fromkeys(row["net"] for row in rows))

    figure, panels = plt.subplots(
        1, len(nets), figsize=(3.9 * len(nets), 3.3), dpi=100, sharey=True, squeeze=False
    )
    for axes, net in zip(panels[0], nets, strict=True):
        draw(axes, [row for row in rows if row["net"] == net], policies)
        axes.invert_xaxis()
    first = panels[0][0]
    slowest = max(row["time_ratio"]["median"] for row in rows if row["feasible"])
    first.set_ylim(0, min(MOST, 1.1 * slowest))
    first.set_ylabel("time of a step, plain = 1", fontsize=8)
    first.legend(frameon=False, loc="upper left", fontsize=8)
    versions = result["provenance"]
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
