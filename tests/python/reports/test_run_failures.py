"""Failures in the report of `recoup run`, and `Run.failures`."""

import gc
import json
import signal
import textwrap
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import recoup
from command import cli
from recoup._memory.sizes import format_bytes
from recoup._reporting.failures import NOTED_ROWS

MEMORY = """
    import torch
    from torch import nn

    class Greedy(nn.Module):
        def forward(self, x):
            return x.repeat(4096, 64)

    model = nn.Sequential(nn.Linear(64, 64), Greedy())
    try:
        model(torch.randn(64, 64))
    finally:
        torch.ones(64).sum().item()  # what runs after it changes nothing of the report
"""
EXIT = """
    import torch
    base = torch.randn(2**18)
    kept = [base * i for i in range(40)]
"""


HAS_NOTES = hasattr(BaseException, "add_note")
"""Errors have notes since Python 3.11."""


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("1 / 0", "ZeroDivisionError", "division by zero"),
        ("import sys; sys.exit(3)", "SystemExit", "3"),
        ("raise ValueError('first\\nsecond')", "ValueError", "first"),
        ("import signal; signal.raise_signal(signal.SIGINT)", "KeyboardInterrupt", ""),
        (MEMORY, "recoup.errors.OutOfBudgetError", "recoup: out of budget in aten::repeat"),
    ],
)
def test_both_reports_describe_the_failure(
    tmp_path: Path, text: str, kind: str, message: str
) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(text), encoding="utf-8")
    for name in ("r.json", "r.html"):
        result = cli("run", "--budget", "8MiB", "--report", name, "script.py", cwd=tmp_path)
        assert result.returncode not in (0, None)
        assert kind != "KeyboardInterrupt" or result.returncode in (-signal.SIGINT, 130)
    report = json.loads((tmp_path / "r.json").read_text())
    (failure,) = report["failures"]
    assert (failure["where"], failure["type"]) == ("body", kind)
    assert failure["message"].startswith(message) and "second" not in failure["message"]
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<h2>How it failed</h2>" in page and f"<b>{kind}</b>" in page
    if text == MEMORY:
        assert (failure["op"], failure["module"]) == ("aten::repeat", "1")
        assert failure["figures"]["asked_bytes"] == 64 * 64 * 4096 * 64 * 4
        assert failure["figures"]["budget_bytes"] == 8 << 20
        assert sum(row["bytes"] for row in failure["rows"]) == failure["charged_bytes"]
        assert {row["kind"] for row in failure["rows"]} >= {"parameters", "activations"}
        assert "The chart ends where an allocation failed." in page
        assert ("Memory held when the allocation failed" in result.stderr) == HAS_NOTES


@pytest.mark.parametrize("text", ["pass", "import sys; sys.exit(0)", EXIT])
def test_a_successful_program_has_no_failure(tmp_path: Path, text: str) -> None:
    """The program has ended: no code uses a tensor that does not fit at the exit."""
    (tmp_path / "script.py").write_text(textwrap.dedent(text), encoding="utf-8")
    result = cli("run", "--budget", "8MiB", "--report", "r.json", "script.py", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "r.json").read_text())["failures"] == []


@pytest.mark.skipif(not HAS_NOTES, reason="before Python 3.11 an error has no notes")
def test_an_error_ends_with_the_largest_holders() -> None:
    """By module and kind, with the sizes of the report."""
    torch.manual_seed(0)
    layers = [each for _ in range(8) for each in (nn.Linear(64, 64), nn.Tanh())]
    with pytest.raises(recoup.OutOfBudgetError) as caught:
        with recoup.budget("1MiB", profile="modules") as run:
            model = nn.Sequential(*layers)
            model(torch.randn(64, 64)).repeat(4096, 1)
    (failure,) = run.failures()
    assert failure.rows is not None and len(failure.rows) > NOTED_ROWS
    (note,) = getattr(caught.value, "__notes__", [""])
    head, *lines, rest = note.splitlines()
    assert head == "Memory held when the allocation failed, by module and kind:"
    for row, line in zip(failure.rows, lines, strict=False):
        module, kind, size = line[2:].split("  ", 1)[0], row.kind, format_bytes(row.bytes)
        assert module.strip() == (row.module or "outside modules")
        assert kind in line and line.endswith(size)
    left = failure.rows[NOTED_ROWS:]
    assert rest.split() == [
        *f"{len(left)} other rows in the report".split(),
        *format_bytes(sum(row.bytes for row in left)).split(),
    ]


def test_an_error_does_not_list_holders_that_were_not_recorded() -> None:
    with pytest.raises(recoup.OutOfBudgetError) as caught, recoup.budget("1MiB"):
        torch.randn(1 << 20)
    assert not getattr(caught.value, "__notes__", [])


def test_a_failed_exit_is_reported_until_it_is_completed() -> None:
    kept: list[torch.Tensor] = []
    with pytest.raises(recoup.OutOfBudgetError) as caught:
        with recoup.budget("1MiB", profile="modules") as run:
            x = torch.randn(1 << 14)
            kept.extend(x * i for i in range(32))
    (failure,) = run.failures()
    assert (failure.where, failure.op) == ("exit", caught.value.op)
    assert any("run.resume(" in line for line in failure.help)
    assert failure.rows is not None
    assert sum(row.bytes for row in failure.rows) == failure.charged_bytes > 0
    assert "The exit of the scope raised an exception." in run.page()
    run.resume("64MiB")
    assert run.failures() == []
    assert "How it failed" not in run.page()


def test_both_the_body_and_the_exit_may_fail() -> None:
    kept: list[torch.Tensor] = []
    with pytest.raises(ValueError, match="on purpose"):
        with recoup.budget("1MiB") as run:
            x = torch.randn(1 << 14)
            kept.extend(x * i for i in range(32))
            raise ValueError("on purpose")
    assert [each.where for each in run.failures()] == ["body", "exit"]
    assert run.failures()[1].rows is None  # modules were not recorded
    assert [each.type.rpartition(".")[2] for each in run.failures()] == [
        "ValueError",
        "OutOfBudgetError",
    ]
    run.resume("64MiB")
    assert [each.where for each in run.failures()] == ["body"]


def test_an_error_raised_from_out_of_budget_has_its_figures() -> None:
    def fails() -> None:
        try:
            torch.empty(1 << 24).fill_(1)
        except recoup.OutOfBudgetError as error:
            raise RuntimeError("the batch is too large") from error

    with pytest.raises(RuntimeError, match="too large"):
        with recoup.budget("1MiB", profile="modules") as run:
            model = nn.Linear(8, 8)
            model(torch.randn(4, 8))
            fails()
    (failure,) = run.failures()
    assert (failure.type, failure.message) == ("RuntimeError", "the batch is too large")
    assert failure.figures["asked_bytes"] == 1 << 26
    assert failure.rows is not None
    assert "parameters" in {row.kind for row in failure.rows}


def test_a_caught_error_is_not_a_failure() -> None:
    with recoup.budget("1MiB", profile="timeline") as run:
        for size in (1 << 24, 1 << 10):
            try:
                torch.empty(size).fill_(1)
            except recoup.OutOfBudgetError:
                continue
        torch.ones(64).cos()
    assert run.failures() == []
    named = run.attribution()
    assert named is not None and named.step is not None
    assert any("cos" in moment.name for moment in run.timeline())
    ops = [named.moment(row).name for row in named.step["moments"]]
    assert any("cos" in name for name in ops)  # the picture does not end at the error


def test_closing_a_generator_is_not_a_failure() -> None:
    runs: list[recoup.Run] = []

    def generate() -> Any:
        with recoup.budget("1MiB") as run:
            runs.append(run)
            yield torch.ones(4)

    generator = generate()
    next(generator)
    generator.close()
    assert runs[0].failures() == []


class Held:
    """Dies with the frame that holds it."""


def test_a_failure_keeps_no_object_of_the_program_alive() -> None:
    seen: list[weakref.ref[Held]] = []

    def body(run: recoup.Run) -> None:
        held = Held()
        seen.append(weakref.ref(held))
        raise ValueError(run.stats().op_count)

    try:
        with recoup.budget("1MiB", profile="timeline") as run:
            body(run)
    except ValueError:
        pass
    gc.collect()
    assert len(run.failures()) == 1
    assert seen[0]() is None
