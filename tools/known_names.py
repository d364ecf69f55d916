#!/usr/bin/env python3
"""Writes python/recoup/known_names.json: names that the command line shows and checks.

They are defined where PyTorch is loaded: policies and planners in the C++ core, networks in the
bench. The command line answers `--help` and wrong arguments without loading it, which takes
seconds. So it reads this file. tests/python/test_known_names.py fails when the file differs.

Usage: tools/known_names.py, with the Python in which recoup is installed
"""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "python" / "recoup" / "known_names.json"
OF_CORE = ("policies", "dtr_policies", "layout_planners", "order_traversals", "order_rules")
"""Functions of `recoup._C` without parameters."""


def tables() -> dict[str, list[Any]]:
    """The rows of each table, in the order in which they are shown."""
    from recoup import _C
    from recoup.bench.alternatives import ALTERNATIVES
    from recoup.bench.nets import NETS
    from recoup.bench.nets.real import real_net_names

    return {
        **{name: getattr(_C, name)() for name in OF_CORE},
        "bench_nets": [net.name for net in NETS],
        "bench_real_nets": real_net_names(),
        "bench_alternatives": [alternative.name for alternative in ALTERNATIVES],
    }


def text() -> str:
    """What the file should hold: a line a row."""
    parts = []
    for name, rows in tables().items():
        lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
        parts.append(f'  "{name}": [\n{lines}\n  ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
