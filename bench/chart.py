"""Draws docs/chart.png from docs/chart.json, a result of bench/budgets.py.

python bench/chart.py
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parents[1] / "docs"
LABELS = {
    "example_char_gpt": "character GPT",
    "example_digits_resnet": "ResNet with BatchNorm",
}
COLOURS = ("#1f6fb4", "#d1602b", "#3c8d5a", "#7a5aa6")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DOCS / "chart.json")
    parser.add_argument("--out", type=Path, default=DOCS / "chart.png")
    args = parser.parse_args()
    result = json.loads(args.data.read_text(encoding="utf-8"))
    rows = [row for row in result["rows"] if row["feasible"]]

    figure, axes = plt.subplots(figsize=(7, 3.6), dpi=150)
    series = list(dict.fromkeys((row["net"], row["policy"]) for row in rows))
    policies = {policy for _, policy in series}
    for (net, policy), colour in zip(series, COLOURS * len(series), strict=False):
        points = sorted(
            (100 * row["budget_share"], row["time_ratio"])
            for row in rows
            if (row["net"], row["policy"]) == (net, policy)
        )
        shares = [share for share, _ in points]
        middle = [ratio["median"] for _, ratio in points]
        label = LABELS.get(net, net) + (f", {policy}" if len(policies) > 1 else "")
        axes.plot(shares, middle, marker="o", markersize=4, color=colour, label=label)
        low, high = ([ratio[key] for _, ratio in points] for key in ("q1", "q3"))
        axes.fill_between(shares, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.invert_xaxis()
    axes.set_xlabel("budget, % of the memory that plain PyTorch takes")
    axes.set_ylabel("time of a step, plain = 1")
    axes.set_ylim(bottom=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    versions = result["provenance"]
    axes.set_title(
        f"torch {versions['torch']}, {versions['cores']} cores, "
        f"policy {', '.join(sorted(policies))}; the bits are equal at every point",
        fontsize=8,
        loc="left",
    )
    figure.tight_layout()
    # No time or version in the file: the same data gives the same picture.
    figure.savefig(args.out, metadata={"Software": None})


if __name__ == "__main__":
    main()
