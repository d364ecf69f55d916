"""Runs the blocks of docs/recipes.md as programs, with recoup and without.

    python recipes.py HEADING FOLDER

runs a recipe with recoup, then without, and saves its results and recoup's statistics in
FOLDER/ours and FOLDER/plain. Also runs under torchrun, with one file for each rank.
"""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

import recoup

PAGE = Path(__file__).parents[3] / "docs" / "recipes.md"
IN_FRAMEWORKS = (
    "transformers.Trainer",
    "Lightning",
    "Quantized weights with LoRA",
    "The largest batch that fits",
)
"""Recipes that tests/frameworks runs: they need packages that `make test` does not install."""
CELL = "# %%\n"

_PARTS = re.compile(r"^## (.+)\n", re.M)
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def read_page(text: str) -> tuple[str, dict[str, str]]:
    """The program before the first heading, and the block of each heading.

    Raises ValueError for a section without a block or with several, and for a repeated heading.
    """
    before, *rest = _PARTS.split(text)
    headings = rest[::2]
    if len(set(headings)) != len(headings):
        raise ValueError(f"a heading comes twice among {headings}")
    blocks = []
    for part, name in zip([before, *rest[1::2]], ["the beginning", *headings], strict=True):
        found = _BLOCK.findall(part)
        if len(found) != 1 or part.count("```") != 2:
            raise ValueError(f"{name}: one block of Python is needed, there are {len(found)}")
        blocks += found
    return blocks[0], dict(zip(headings, blocks[1:], strict=True))


PREAMBLE, RECIPES = read_page(PAGE.read_text(encoding="utf-8"))


def run(source: str, **names: Any) -> dict[str, Any]:
    """The variables after the page's program and the block; `names` are set before the block."""
    namespace: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(PREAMBLE, "recipes.md, the program", "exec"), namespace)
    namespace |= names
    for number, cell in enumerate(source.split(CELL)):
        exec(compile(cell, f"recipes.md, cell {number}", "exec"), namespace)
    return namespace


def without_recoup() -> SimpleNamespace:
    """A replacement for the module that does nothing: the block becomes plain PyTorch."""

    @contextlib.contextmanager
    def nothing(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(report=str)

    return SimpleNamespace(budget=nothing, OutOfBudgetError=recoup.OutOfBudgetError)


def left_by(namespace: dict[str, Any]) -> dict[str, Any]:
    """All numbers that the block computed: tensors, losses, weights, the optimizer's state.

    Includes the state of the random numbers, so it must be called before any other code runs.
    """
    kinds = (torch.Tensor, float, list, tuple)
    found = {name: value for name, value in namespace.items() if isinstance(value, kinds)}
    found["the next random number"] = torch.get_rng_state()
    for name, value in namespace.items():
        if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
            found[name] = _local(value.state_dict())
    return found


def _local(state: Any) -> Any:
    """This rank's part of a sharded state."""
    if isinstance(state, dict):
        return {name: _local(value) for name, value in state.items()}
    return getattr(state, "_local_tensor", state)


def assert_squeezed(stats: recoup.Stats) -> None:
    """The run stayed within the budget, and needed recoup to do so."""
    assert 0 < stats.peak_bytes <= stats.budget_bytes
    assert stats.evictions > 0 and stats.replays > 0, "the budget is too large to say anything"


def main(heading: str, folder: str) -> None:
    """Runs once in each rank under torchrun."""
    rank = os.environ.get("RANK", "0")
    for name, with_recoup in (("ours", True), ("plain", False)):
        place = Path(folder, name)
        place.mkdir(exist_ok=True)
        os.chdir(place)
        namespace = run(RECIPES[heading], **({} if with_recoup else {"recoup": without_recoup()}))
        stats = namespace["run"].stats().to_dict() if with_recoup else None
        torch.save((left_by(namespace), stats), f"{rank}.pt")
        # The rendezvous of torchrun serves one process group only.
        world = int(os.environ.get("WORLD_SIZE", "1"))
        meet = {"init_method": f"file://{place}/ranks", "rank": int(rank), "world_size": world}
        dist.init_process_group = functools.partial(_INIT, **meet)


_INIT = dist.init_process_group

if __name__ == "__main__":
    main(*sys.argv[1:])
