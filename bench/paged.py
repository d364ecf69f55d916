"""Programs whose largest tensor exceeds the budget: time and memory with paged results and without.

    OMP_NUM_THREADS=2 python bench/paged.py --json paged.json

Each program runs in a process of its own, plainly and in a budget below its largest tensor. Prints
a table in Markdown: the seconds of the program, the process's peak of resident memory above that
of the imports, and the bytes that were read and written. The bits of both runs are compared.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measure import add_json, parser_of, write_result

import recoup
from recoup.bench.harness.processes import call
from recoup.bench.harness.tables import print_markdown

MIB = 1 << 20


def distances() -> list[torch.Tensor]:
    """A Gaussian kernel of the distances of 12,000 and 8,000 points, and its row sums."""
    x, y = torch.randn(12_000, 32), torch.randn(8_000, 32)
    return [(-torch.cdist(x, y).square()).exp().sum(1)]


def cross_entropy() -> list[torch.Tensor]:
    """Logits of 6,000 tokens over 16,000 words, the loss, and its backward."""
    states = torch.randn(6_000, 256, requires_grad=True)
    words = torch.randn(16_000, 256, requires_grad=True)
    loss = F.cross_entropy(states @ words.t(), torch.randint(16_000, (6_000,)))
    loss.backward()
    assert states.grad is not None and words.grad is not None
    return [loss.detach(), states.grad, words.grad]


def block(before: int, after: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv3d(before, after, 3, padding=1), torch.nn.BatchNorm3d(after), torch.nn.ReLU()
    )


def volume() -> list[torch.Tensor]:
    """Inference of a 3D U-Net of two levels on one volume of 160 x 160 x 160."""
    down, middle, last = block(1, 16), block(16, 32), block(32, 16)
    up, out = torch.nn.ConvTranspose3d(32, 16, 2, 2), torch.nn.Conv3d(16, 2, 1)
    net = torch.nn.ModuleList([down, middle, last, up, out]).eval()
    with torch.no_grad():
        first = down(torch.randn(1, 1, 160, 160, 160))
        joined = torch.cat([first, up(middle(F.max_pool3d(first, 2)))], 1)
        assert not net.training
        return [out(last(joined)).softmax(1).amax((2, 3, 4))]


def convolved(nodes: int, edges: int, is_sorted: bool) -> list[torch.Tensor]:
    """Messages along random edges, scaled, and added up by their targets."""
    x, scale = torch.randn(nodes, 16), torch.rand(edges, 1)
    source, target = torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,))
    if is_sorted:
        target = target.sort().values
    messages = x.index_select(0, source) * scale
    return [torch.zeros(nodes, 16).index_add_(0, target, messages)]


def graph_convolution() -> list[torch.Tensor]:
    """400,000 edges, whose targets are in random order."""
    return convolved(10_000, 400_000, False)


def large_graph_convolution() -> list[torch.Tensor]:
    """20 million edges, sorted by their targets."""
    return convolved(1_000_000, 20_000_000, True)


@dataclass(frozen=True)
class Program:
    run: Callable[[], list[torch.Tensor]]
    largest_bytes: int
    """Size of the largest tensor, in bytes."""
    budget_bytes: int
    window_bytes: int


PROGRAMS = {
    "distances": Program(distances, 384_000_000, 256 * MIB, 64 * MIB),
    "cross entropy": Program(cross_entropy, 384_000_000, 256 * MIB, 64 * MIB),
    "3D U-Net, one volume": Program(volume, 524_288_000, 256 * MIB, 64 * MIB),
    "graph convolution": Program(graph_convolution, 25_600_000, 24 * MIB, 16 * MIB),
    "graph convolution, 20 million sorted edges": Program(
        large_graph_convolution, 1_280_000_000, 1024 * MIB, 256 * MIB
    ),
}


def resident_peak() -> int:
    """The most resident memory of this process so far, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def measured(program: Program, paged: bool) -> dict[str, Any]:
    """Runs the program in this process."""
    torch.manual_seed(0)
    before = resident_peak()
    use = None
    start = time.perf_counter()
    if paged:
        options = recoup.Options(page_window=program.window_bytes)
        with recoup.budget(program.budget_bytes, options=options) as run:
            results = program.run()
        use = run.paged_results()
        assert run.stats().peak_bytes <= program.budget_bytes
    else:
        results = program.run()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "resident_bytes": resident_peak() - before,
        "read_bytes": use.read_bytes if use else 0,
        "written_bytes": use.written_bytes if use else 0,
        "results": [hashlib.sha256(each.numpy().tobytes()).hexdigest() for each in results],
    }


COLUMNS = {
    "program": "{program}",
    "largest tensor": "{largest_bytes:,.0fMB}",
    "budget": "{budget_bytes:,.0fMB}",
    "seconds, plain": "{plain[seconds]:.1f}",
    "seconds, paged": "{paged[seconds]:.1f}",
    "resident, plain": "{plain[resident_bytes]:,.0fMB}",
    "resident, paged": "{paged[resident_bytes]:,.0fMB}",
    "read": "{paged[read_bytes]:,.1fGB}",
    "written": "{paged[written_bytes]:,.1fGB}",
}


def row_of(name: str) -> dict[str, Any]:
    """Both ways, each in a process of its own."""
    command = [sys.executable, __file__, "--one", name]
    plain, paged = (call([*command, *flags]).result() for flags in ([], ["--paged"]))
    assert plain.pop("results") == paged.pop("results"), f"{name}: other bits"
    program = PROGRAMS[name]
    sizes = {"largest_bytes": program.largest_bytes, "budget_bytes": program.budget_bytes}
    return {"program": name, **sizes, "plain": plain, "paged": paged}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    add_json(parser)
    parser.add_argument("--one", choices=PROGRAMS, help="run one program in this process")
    parser.add_argument("--paged", action="store_true", help="with --one: in its budget")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(PROGRAMS[options.one], options.paged)))
        return
    rows = print_markdown(COLUMNS, map(row_of, options.programs))
    write_result(options.json, "paged results", rows)


if __name__ == "__main__":
    main()
