"""docs/recipes.md as programs: its blocks, run as they stand, with recoup and without.

    python recipes.py HEADING FOLDER

runs a recipe with recoup, then without, and saves what it computed, and recoup's figures, in
FOLDER/ours and FOLDER/plain. Also under torchrun: a file of each rank.
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

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
IN_FRAMEWORKS = ("transformers.Trainer", "Lightning", "The largest batch that fits")
"""Those that tests/frameworks runs: they need what `make test` has not."""
CELL = "# %%\n"

_PARTS = re.compile(r"^## (.+)\n", re.M)
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def read_page(text: str) -> tuple[str, dict[str, str]]:
    """The program before the first heading, and the block of each heading.

    Raises ValueError for a part that has no block, or several, and for a heading that comes twice.
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
    """What the block leaves behind the page's program; `names` are there before it, too."""
    namespace: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(PREAMBLE, "recipes.md, the program", "exec"), namespace)
    namespace |= names
    for number, cell in enumerate(source.split(CELL)):
        exec(compile(cell, f"recipes.md, cell {number}", "exec"), namespace)
    return namespace


def without_recoup() -> SimpleNamespace:
    """Stands for the module, and does nothing: the block is a plain PyTorch program then."""

    @contextlib.contextmanager
    def nothing(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(report=str)

    return SimpleNamespace(budget=nothing, carry=nothing, OutOfBudgetError=recoup.OutOfBudgetError)


def left_by(namespace: dict[str, Any]) -> dict[str, Any]:
    """All numbers that it computed: tensors, losses, weights, the optimizer's state.

    And where the random numbers are; so it is called before anything else is run.
    """
    kinds = (torch.Tensor, float, list, tuple)
    found = {name: value for name, value in namespace.items() if isinstance(value, kinds)}
    found["the next random number"] = torch.get_rng_state()
    for name, value in namespace.items():
        if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
            found[name] = _local(value.state_dict())
    return found


def _local(state: Any) -> Any:
    """Of FSDP2 this rank's part."""
    if isinstance(state, dict):
        return {name: _local(value) for name, value in state.items()}
    return getattr(state, "_local_tensor", state)


def assert_squeezed(stats: recoup.Stats) -> None:
    """It was within the budget, and would not have been without recoup."""
    assert 0 < stats.peak_bytes <= stats.budget_bytes
    assert stats.evictions > 0 and stats.replays > 0, "the budget is too large to say anything"


def main(heading: str, folder: str) -> None:
    """In each rank, if there are ranks."""
    rank = os.environ.get("RANK", "0")
    for name, with_recoup in (("ours", True), ("plain", False)):
        place = Path(folder, name)
        place.mkdir(exist_ok=True)
        os.chdir(place)
        namespace = run(RECIPES[heading], **({} if with_recoup else {"recoup": without_recoup()}))
        stats = namespace["run"].stats().to_dict() if with_recoup else None
        torch.save((left_by(namespace), stats), f"{rank}.pt")
        # What torchrun says of where ranks meet is good for one time.
        world = int(os.environ.get("WORLD_SIZE", "1"))
        meet = {"init_method": f"file://{place}/ranks", "rank": int(rank), "world_size": world}
        dist.init_process_group = functools.partial(_INIT, **meet)


_INIT = dist.init_process_group

if __name__ == "__main__":
    main(*sys.argv[1:])
