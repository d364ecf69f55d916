"""Runs the command line: in a new process, or in this one."""

import os
import subprocess
import sys
from typing import Any

import pytest

from recoup.commands.cli import main

TRAIN = """
    import torch
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
"""


PATIENCE = float(os.environ.get("RECOUP_TEST_PATIENCE", "1"))
"""Factor for the time that a command may take: above 1 where processors are emulated."""


def cli(
    *args: object, timeout: float = 600, python: str | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs the command in a new process: of `python`, or of `sys.executable` (see warm_python)."""
    return subprocess.run(
        [python or sys.executable, "-m", "recoup", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout * PATIENCE,
        check=False,
        **options,
    )


def cli_here(capsys: pytest.CaptureFixture[str], *args: object) -> subprocess.CompletedProcess[str]:
    """Runs the command in this process, which saves loading PyTorch again; not for `run`."""
    capsys.readouterr()
    try:
        code: Any = main([str(arg) for arg in args])
    except SystemExit as ending:
        code = ending.code
    output, errors = capsys.readouterr()
    return subprocess.CompletedProcess(args, code or 0, output, errors)


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """The one-line error of a command that fails."""
    result = cli_here(capsys, *args)
    assert result.returncode != 0 and result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr
