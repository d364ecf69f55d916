#!/usr/bin/env python3
"""Writes python/recoup/known_names.json: names that the command line shows and checks.

They are defined in modules that load PyTorch, which takes seconds: options, policies and planners
in the C++ core, networks in the bench. The command line answers `--help` and wrong arguments
without PyTorch, so it reads this file. tests/python/cli/test_known_names.py fails if the file
differs.

Usage: tools/known_names.py, with the Python in which recoup is installed
"""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "python" / "recoup" / "known_names.json"
OFFLINE = ("dtr_policies", "layout_planners", "order_traversals", "order_rules")
"""Functions of `recoup.offline._C` without parameters."""


def tables() -> dict[str, list[Any]]:
    """The rows of each table, in display order."""
    from recoup import _C, offline
    from recoup.bench.alternatives import ALTERNATIVES
    from recoup.bench.nets import NETS
    from recoup.bench.nets.real import real_net_names

    return {
        "options": _C.options(),
        "policies": _C.policies(),
        **{name: getattr(offline._C, name)() for name in OFFLINE},
        "bench_nets": [net.name for net in NETS],
        "bench_real_nets": real_net_names(),
        "bench_alternatives": [alternative.name for alternative in ALTERNATIVES],
    }


def text() -> str:
    """The content of the file, with one row per line."""
    parts = []
    for name, rows in tables().items():
        lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
        parts.append(f'  "{name}": [\n{lines}\n  ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
