"""What it costs to run ops that depend on the order of threads with one thread.

    python bench/thread_order.py [--rounds 15]

Times each op in plain PyTorch with one and with two threads in turn. Prints a table in Markdown:
the median of the rounds.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from measure import parser_of

from recoup.bench.harness.tables import print_markdown
from recoup.bench.harness.turns import in_turns

OPS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "gradient of `x[i]` (`index_put` with accumulate)": lambda x, i: torch.index_put(
        torch.zeros_like(x), (i,), x, accumulate=True
    ),
    "`x[i] = y` (`index_put`)": lambda x, i: torch.index_put(x, (i,), x),
    "`index_copy`": lambda x, i: torch.index_copy(x, 0, i, x),
    "`put` with accumulate": lambda x, i: torch.put(
        x, torch.arange(x.numel()) % 997, x.flatten(), accumulate=True
    ),
    "`x[mask] = 1`, which keeps all threads": lambda x, i: torch.index_put(
        x, (x > 0,), torch.ones(())
    ),
}


def seconds(op: Callable[[], object], threads: int) -> float:
    torch.set_num_threads(threads)
    started = time.perf_counter()
    op()
    return time.perf_counter() - started


COLUMNS = {
    "op": "{op}",
    "elements": "{rows:,} x {width}",
    "one thread": "{one_ms:.1f} ms",
    "two threads": "{two_ms:.1f} ms",
    "one / two": "{ratio:.2f}",
}


def compared(rounds: int) -> Iterator[dict[str, Any]]:
    torch.manual_seed(0)
    for name, op in OPS.items():
        for rows, width in ((4096, 512), (65536, 64)):
            x, i = torch.randn(rows, width), torch.randint(0, rows // 2, (rows,))
            ways = {threads: partial(seconds, partial(op, x, i), threads) for threads in (1, 2)}
            one, two = map(statistics.median, in_turns(rounds, ways, warm_ups=2).values())
            times = {"one_ms": 1e3 * one, "two_ms": 1e3 * two, "ratio": one / two}
            yield {"op": name, "rows": rows, "width": width, **times}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    print_markdown(COLUMNS, compared(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
