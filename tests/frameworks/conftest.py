"""What all tests of frameworks share: nothing is downloaded, and a table of what they took."""

import os
from collections.abc import Iterator

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import pytest
import torch
from accelerate.state import AcceleratorState

import compare


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread, and nothing of an earlier test: accelerate keeps its settings for the process."""
    torch.set_num_threads(1)
    with monkeypatch.context() as patch:
        # A Trainer writes it, and the next one would read it.
        patch.setenv("ACCELERATE_MIXED_PRECISION", "no")
        AcceleratorState._reset_state(reset_partial_state=True)
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if compare.ROWS:
        terminalreporter.section("in a budget")
        for line in compare.table():
            terminalreporter.write_line(line)
