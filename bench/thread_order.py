"""What it costs to run ops that depend on the order of threads with one thread.

    python bench/thread_order.py [--rounds 15]

Times each op in plain PyTorch with one and with two threads in turn. Prints a table in Markdown:
the median of the rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

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


def seconds(op: Callable[[], object]) -> float:
    started = time.perf_counter()
    op()
    return time.perf_counter() - started


def compare(rounds: int) -> None:
    torch.manual_seed(0)
    print("| op | elements | one thread | two threads | one / two |\n|---|--:|--:|--:|--:|")
    for name, op in OPS.items():
        for rows, width in ((4096, 512), (65536, 64)):
            x, i = torch.randn(rows, width), torch.randint(0, rows // 2, (rows,))
            times: dict[int, list[float]] = {1: [], 2: []}
            for _ in range(rounds + 2):
                for threads, found in times.items():
                    torch.set_num_threads(threads)
                    found.append(seconds(lambda op=op, x=x, i=i: op(x, i)))
            one, two = (statistics.median(times[threads][2:]) for threads in (1, 2))
            print(
                f"| {name} | {rows:,} x {width} | {one * 1e3:.1f} ms | {two * 1e3:.1f} ms "
                f"| {one / two:.2f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    compare(args.rounds)


if __name__ == "__main__":
    main()
