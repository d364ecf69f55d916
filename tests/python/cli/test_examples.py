"""A small form of the example that trains below its parameters and state, and the demo's output."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parents[3] / "examples"))

import demo
import finetune_gpt2
from trained import first_other

pytestmark = pytest.mark.serial

SIZE = finetune_gpt2.Size(layers=2, width=128, heads=2, vocabulary=512, length=16, batch=2)
STEPS = 2


@pytest.fixture(scope="module")
def plain() -> Iterator[finetune_gpt2.Plain]:
    yield finetune_gpt2.train_plainly(SIZE, STEPS, 0)


@pytest.mark.parametrize("fraction", [0.5, 0.25])
def test_gpt2_trains_below_its_parameters_and_state(
    plain: finetune_gpt2.Plain, fraction: float
) -> None:
    assert fraction * plain.peak_bytes < plain.kept_bytes < plain.peak_bytes
    budget = int(fraction * plain.peak_bytes)
    found = finetune_gpt2.train_in(budget, plain, SIZE, STEPS, 0)
    assert found.difference is None
    assert found.stats.peak_bytes <= budget
    assert found.stats.spills > 0 and found.stats.fetches > 0
    assert found.stats.imports > 0


def test_another_training_is_detected(plain: finetune_gpt2.Plain) -> None:
    other = finetune_gpt2.train_plainly(SIZE, STEPS, 1)
    assert first_other(other.digests, plain.digests) is not None
    assert first_other(plain.digests, dict(plain.digests)) is None


def test_the_output_of_the_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"layers": 2, "width": 128, "heads": 2, "vocabulary": 512, "length": 16, "steps": 2}
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["finetune_gpt2.py", *arguments])
    assert finetune_gpt2.main() == 0
    shown = capsys.readouterr().out
    assert "bits equal to plain PyTorch" in shown and "step 1: loss" in shown


def test_the_demo_includes_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=demo.PIPE_WIDTH)
    assert demo.demo_spilling(console, STEPS) == 0
    shown = capsys.readouterr().out
    assert shown.count("bits equal") == len(demo.SPILL_FRACTIONS)
