"""recoup doctor prints one screen, whatever is broken."""

import json
import os
import resource
from pathlib import Path

import pytest
import torch

import recoup
from command import cli, cli_here, refused
from made_up_machine import GIB, made_up, version_2, write
from recoup._memory import machine
from recoup._reporting.page_data import interception
from recoup.commands.doctor import probes as doctor_probes
from recoup.commands.doctor.probes import Finding

NAMES = ("versions", "budgets", "memory", "allocator", "huge pages", "threads", "disk", "GPUs")
PROBES = (*("versions", "scopes", "memory", "allocator", "huge_pages", "threads"), "graphics")


def screen(capsys: pytest.CaptureFixture[str], *args: object) -> list[str]:
    result = cli_here(capsys, "doctor", *args)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) <= 24 and all(line.isprintable() for line in lines)
    return lines


def line_of(lines: list[str], name: str) -> str:
    (line,) = (line for line in lines if line.startswith(f"{name} "))
    return line.removeprefix(name).strip()


def test_the_output_fits_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    lines = screen(capsys)
    assert [line[:11].strip() for line in lines[: len(NAMES)]] == list(NAMES)
    assert lines[len(NAMES)].startswith("unsupported here:")
    said = line_of(lines, "versions")
    for part in (recoup.__version__, torch.__version__, interception()):
        assert part in said
    assert line_of(lines, "budgets").startswith("CPU budgets work")
    assert f"{os.cpu_count()} cores" in line_of(lines, "threads")
    # A kernel may not report huge pages.
    assert not [each for each in lines if "unknown" in each and not each.startswith("huge pages")]


def test_json_has_all_findings(capsys: pytest.CaptureFixture[str]) -> None:
    result = cli_here(capsys, "doctor", "--json")
    data = json.loads(result.stdout)
    keys = {name.replace(" ", "_").lower() for name in NAMES}
    assert data.keys() == keys | {"unsupported"}
    assert data["versions"]["pytorch"] == torch.__version__
    assert data["budgets"] == {"work": True}
    assert 0 < data["memory"]["free_bytes"] <= data["memory"]["physical_bytes"]
    assert data["threads"]["pytorch_threads"] == torch.get_num_threads()


@pytest.mark.parametrize("broken", [*PROBES, "_speeds"])
def test_a_failing_probe_is_unknown_and_the_others_remain(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*_: object) -> Finding:
        raise OSError("not\nhere")

    sound = [line.split()[0] for line in screen(capsys)[: len(NAMES)]]
    monkeypatch.setattr(doctor_probes, broken, fail)
    lines = screen(capsys)
    assert [line.split()[0] for line in lines[: len(NAMES)]] == sound
    assert sum(line.endswith("unknown: OSError: not here") for line in lines) == 1
    assert '"unknown": "OSError: not here"' in cli_here(capsys, "doctor", "--json").stdout


def test_all_probes_may_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*PROBES, "disk"):
        monkeypatch.setattr(doctor_probes, name, lambda *_: 1 / 0)
    lines = screen(capsys)
    assert sum("unknown: ZeroDivisionError" in line for line in lines) == len(NAMES)


def test_a_long_list_is_cut_at_one_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [f"thing {i}: gone" for i in range(40)]
    monkeypatch.setattr(doctor_probes, "graphics", lambda: Finding("none", {}, many))
    monkeypatch.setattr(doctor_probes, "disk", lambda _: Finding("none"))
    lines = screen(capsys)
    assert len(lines) == 24
    shown = sum(line.startswith("- thing") for line in lines)
    assert lines[-1] == f"- {40 - shown} more: run recoup doctor --json"
    assert len(json.loads(cli_here(capsys, "doctor", "--json").stdout)["unsupported"]) == 40


def test_the_file_that_sets_the_limit_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = made_up(tmp_path, cgroup="0::/job")
    folder = version_2(roots, "job", 8 * GIB, 3 * GIB)
    write(folder / "memory.high", "much")
    monkeypatch.setattr(machine, "_roots", roots)
    lines = screen(capsys)
    assert line_of(lines, "memory") == (
        f"64.0 GiB physical; 5.0 GiB free ({folder}/memory.max); "
        f"cgroup limit: 8.0 GiB ({folder}/memory.max)"
    )
    problem = f"{folder}/memory.high says 'much', which is not a number of bytes"
    assert f"- a memory limit is unknown: {problem}" in lines


def test_a_limit_on_addresses_does_not_end_the_command() -> None:
    most = machine.look().limits[0].limit_bytes // 2
    result = cli(
        "doctor",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "\nbudgets     CPU budgets do not work\n" in result.stdout
    assert "\n- CPU budgets: the system refuses to reserve addresses for all" in result.stdout
    assert "a scope may fail to reserve addresses for " in result.stdout


# ---- the disk ----


def test_the_disk_is_measured_and_keeps_no_file(tmp_path: Path) -> None:
    found = doctor_probes.disk(str(tmp_path))
    if found.data["system"] in ("tmpfs", "ramfs"):
        pytest.skip("the tests' directory is memory")
    assert found.data["write_bytes_per_s"] > 0 and found.data["read_bytes_per_s"] > 0
    assert found.data["free_bytes"] > 0 and "GB/s" in found.text
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_memory_is_not_a_disk(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_probes, "_kind_of_system", lambda _: "tmpfs")
    assert (
        "- a spill tier in /tmp: it is in memory (tmpfs), so spilling would save no memory"
        in screen(capsys, "--spill-dir", "/tmp")
    )
    assert line_of(screen(capsys), "disk") == "no directory on a disk"


def test_the_default_directory_is_that_of_a_spill_tier(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds = {"/tmp": "tmpfs", "/var/tmp": "ext4", str(tmp_path): "ext4"}
    monkeypatch.setattr(doctor_probes, "_kind_of_system", kinds.get)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert doctor_probes._default_folder() == str(tmp_path)
    monkeypatch.delenv("TMPDIR")
    assert doctor_probes._default_folder() == "/var/tmp"


def test_a_missing_directory_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    said = line_of(screen(capsys, "--spill-dir", "/no/such"), "disk")
    assert said.startswith("unknown: FileNotFoundError: ") and "/no/such" in said


def test_copies_that_block_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor_probes, "_io_uring_problem", lambda: "Operation not permitted")
    monkeypatch.setattr(doctor_probes, "_kind_of_system", lambda _: "ext4")
    monkeypatch.setattr(doctor_probes, "_speeds", lambda _: (1e9, 2e9, False))
    found = doctor_probes.disk(str(tmp_path))
    assert found.text.endswith("writes 1.00 GB/s, reads 2.00 GB/s")
    assert [line.partition(":")[0] for line in found.unsupported] == [
        f"direct I/O in {tmp_path}",
        "io_uring (Operation not permitted)",
    ]


# ---- other findings ----


def test_allocators_and_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = ["7f00-7f01 r-xp 0 08:01 9    /usr/lib/libjemalloc.so.2", "7f01-7f02 rw-p 0 00:00 0 "]
    monkeypatch.setattr(doctor_probes, "_lines", lambda _: maps)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    text = doctor_probes.allocator().text
    assert text.startswith("jemalloc (/usr/lib/libjemalloc.so.2)")
    assert "MALLOC_ARENA_MAX=2" in text


@pytest.mark.parametrize(
    ("text", "mode", "missing"),
    [
        ("always [madvise] never", "madvise", 0),
        ("[always] madvise never", "always", 0),
        ("always madvise [never]", "never", 1),
    ],
)
def test_huge_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: str, missing: int
) -> None:
    write(tmp_path / "enabled", text)
    monkeypatch.setattr(doctor_probes, "HUGE_PAGES", tmp_path / "enabled")
    found = doctor_probes.huge_pages()
    assert found.data["transparent"] == mode and len(found.unsupported) == missing
    write(tmp_path / "enabled", "garbage")
    assert "unknown: ValueError: unexpected content 'garbage' in" in (
        doctor_probes.look(doctor_probes.huge_pages).text
    )


def test_missing_gpus_are_one_finding() -> None:
    found = doctor_probes.graphics()
    if found.data["devices"]:
        pytest.skip("there are GPUs")
    (line,) = found.unsupported
    assert line.startswith("GPU budgets: ") and line.endswith("are outside every budget")


def test_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "doctor", "--yaml").startswith("recoup doctor: error: ")
    assert refused(capsys, "doctor", "now").startswith("recoup doctor: error: ")
