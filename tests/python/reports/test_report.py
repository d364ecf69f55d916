"""Statistics and the report of a run."""

import dataclasses
import threading

import pytest

import recoup
from conftest import halves
from recoup._reporting.report import format_ns, format_report


def test_stats_are_frozen_and_convert_to_json() -> None:
    with recoup.budget("64MiB") as run:
        halves()
        during = run.stats()
    after = run.stats()
    assert during.budget_bytes == after.budget_bytes == 64 * 2**20
    assert after.op_count >= during.op_count
    assert after.to_dict() == {
        field.name: getattr(after, field.name) for field in dataclasses.fields(after)
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        after.replays = 1  # type: ignore[misc]


def test_stats_have_the_fields_of_the_module() -> None:
    with recoup.budget("64MiB") as run:
        counts = run._engine.stats()
    assert recoup.Stats.from_engine(counts) == run.stats()
    with pytest.raises(ValueError, match=r"missing \['replays'\], unknown \[\]"):
        recoup.Stats.from_engine({k: v for k, v in counts.items() if k != "replays"})
    with pytest.raises(ValueError, match=r"missing \[\], unknown \['replais'\]"):
        recoup.Stats.from_engine({**counts, "replais": 0})


def test_stats_can_be_read_from_another_thread() -> None:
    seen: list[recoup.Stats] = []
    with recoup.budget("64MiB") as run:
        halves()
        thread = threading.Thread(target=lambda: seen.append(run.stats()))
        thread.start()
        thread.join()
    assert seen[0].budget_bytes == 64 * 2**20


def stats_of(**counts: int) -> recoup.Stats:
    zeros = {field.name: 0 for field in dataclasses.fields(recoup.Stats)}
    return recoup.Stats.from_engine(zeros | counts)


def test_report_has_the_figures() -> None:
    stats = stats_of(
        budget_bytes=2**30,
        peak_bytes=2**29,
        replays=1234,
        evictions=99,
        evicted_bytes=3 * 2**20,
        op_ns=2 * 10**9,
        replay_ns=10**8,
    )
    pinned = [
        recoup.PinnedValue(bytes=2**20, by="non-recomputable", op="aten::randn"),
        recoup.PinnedValue(bytes=2**10, by="escape", op="aten::add"),
        recoup.PinnedValue(bytes=2**20, by="non-recomputable", op="aten::randn"),
        *(recoup.PinnedValue(bytes=1, by="non-recomputable", op=f"aten::op{i}") for i in range(20)),
    ]
    lines = [
        tuple(cell.strip() for cell in line.split("  ") if cell.strip())
        for line in format_report(stats, pinned, policy="lru").splitlines()
    ]
    for line in [
        ("recoup: policy lru, budget 1,073,741,824 bytes (1.0 GiB)",),
        ("peak", "512 MiB", "50.0 %"),
        ("replays", "1,234"),
        ("evictions", "99", "3.0 MiB"),
        ("program ops", "2.00 s", "100.0 %"),
        ("replays", "100.00 ms", "5.0 %"),
        ("non-recomputable", "2.0 MiB", "2", "aten::randn"),
        ("escape", "1.0 KiB", "1", "aten::add"),
        ("others", "12 B", "12", "-"),
    ]:
        assert line in lines, line


def test_report_names_the_ops_that_waited_for_copies() -> None:
    waits = [
        recoup.CopyWait(op="aten::mm", spill_ns=3 * 10**9, fetch_ns=10**6),
        recoup.CopyWait(op="", spill_ns=0, fetch_ns=2 * 10**9),
        *(recoup.CopyWait(op=f"aten::op{i}", spill_ns=10, fetch_ns=1) for i in range(5)),
    ]
    text = format_report(stats_of(budget_bytes=1), [], policy="lru", copy_waits=waits)
    lines = [line.split() for line in text.splitlines()]
    for line in [
        ["waits", "for", "copies", "spills", "fetches"],
        ["aten::mm", "3.00", "s", "1.00", "ms"],
        ["between", "ops", "0", "ns", "2.00", "s"],
        ["others", "20", "ns", "2", "ns"],
    ]:
        assert line in lines, text
    assert "waits for" not in format_report(stats_of(budget_bytes=1), [], policy="lru")


def test_report_relates_copies_to_a_step() -> None:
    stats = stats_of(budget_bytes=1, spills=9, spilled_bytes=9 << 20, fetched_bytes=6 << 20)
    lines = [line.split() for line in format_report(stats, [], policy="lru", steps=3).splitlines()]
    assert ["spilled", "a", "step,", "mean", "3.0", "MiB"] in lines
    assert ["fetched", "a", "step,", "mean", "2.0", "MiB"] in lines
    assert "a step" not in format_report(stats, [], policy="lru")


def test_report_columns_are_aligned() -> None:
    text = format_report(stats_of(budget_bytes=1), [], policy="lru")
    assert text == "\n".join(line.rstrip() for line in text.splitlines())
    (work, ops) = (line for line in text.splitlines() if line.startswith(("work", "ops")))
    assert work.index("count") + len("count") == ops.rindex("0") + 1
    assert "nothing" in text


def test_report_is_plain_text_of_a_fixed_width(monkeypatch: pytest.MonkeyPatch) -> None:
    by, op = "[red]non-recomputable[/red]", "my:smile:op" + 200 * "x"
    pinned = [recoup.PinnedValue(bytes=1, by=by, op=op)]
    wide = format_report(stats_of(budget_bytes=1), pinned, policy="lru")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert format_report(stats_of(budget_bytes=1), pinned, policy="lru") == wide
    assert wide.isascii() and "  " + op + "\n" in wide
    assert "[red]non-recomputable[/red] " in wide


def test_report_works_during_and_after_a_run() -> None:
    with recoup.budget("64MiB") as run:
        halves()
        assert "program ops" in run.report()
    assert "program ops" in run.report()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 ns"), (999, "999 ns"), (1500, "1.50 us"), (10**6, "1.00 ms"), (10**10, "10.00 s")],
)
def test_format_ns(count: int, text: str) -> None:
    assert format_ns(count) == text
