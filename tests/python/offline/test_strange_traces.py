"""Trace files that no recorder wrote, and the commands that read them."""

import struct
import zlib
from pathlib import Path

import pytest

import recoup
from command import cli_here, refused
from recoup.offline.trace_steps import changed, numbers_of

# Records of a frame by docs/maintainers/trace-format.md.
REFUSED = {
    "a failed op with a result that is named later": "0101610201800103000008010000000100401400",
    "a kernel that keeps what its op does not return": "0101610202800180010300000501000000010040",
    "a kernel that allocates 0 bytes": "0101610201000300000501000000010000",
    "a block of nothing": "1100",
    "a scope that is left too many times": "1c" * 2000,
}
WITHOUT_BYTES = {
    "nothing": "",
    "a name": "010161",
    "a tensor without bytes that dies": "10001400",
}


def write(path: Path, records: str) -> Path:
    raw = bytes.fromhex(records)
    packed = zlib.compress(raw, 1)
    frame = struct.pack("<III", len(raw), len(packed), zlib.crc32(packed)) + packed
    head = b"\x89rtrace\n" + struct.pack("<I", 15)
    path.write_bytes(head + (frame if raw else b"") + bytes(12))
    return path


@pytest.mark.parametrize("records", REFUSED.values(), ids=REFUSED)
def test_an_invalid_trace_is_refused_with_the_offset(records: str, tmp_path: Path) -> None:
    path = write(tmp_path / "strange.rtrace", records)
    with pytest.raises(ValueError, match=r"strange.rtrace: offset 12, byte \d+ of the frame"):
        recoup.Trace.read(path)


@pytest.mark.parametrize("command", ["simulate", "layout", "order"])
def test_commands_refuse_an_invalid_trace_in_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "strange.rtrace", next(iter(REFUSED.values())))
    assert "it failed but returns a result" in refused(capsys, command, path)


@pytest.mark.parametrize("records", WITHOUT_BYTES.values(), ids=WITHOUT_BYTES)
def test_a_trace_without_bytes_is_valid(
    records: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "empty.rtrace", records)
    assert "no budget to simulate" in refused(capsys, "simulate", path, "--policy", "all")
    for command in ("layout", "order"):
        result = cli_here(capsys, command, path)
        assert (result.returncode, result.stderr) == (0, "")
    trace = recoup.Trace.read(path)
    assert trace.simulate(64).time_ratio == 1.0
    trace.write(tmp_path / "again.rtrace")
    assert recoup.Trace.read(tmp_path / "again.rtrace").ops() == trace.ops()


def test_records_of_runs_on_gpus_are_read_and_written(tmp_path: Path) -> None:
    """A device, segments, storages in them, and a block that a kernel keeps."""
    device = "064001" + "808040" + "00" + "03"
    kernel = "010161" + "0202800101"
    segments = "210064" + "094000" + "0740" + "210000"
    kept = "030000010100000000" + "084000" + "1200"
    path = write(tmp_path / "run.rtrace", device + kernel + segments + kept + "1c")
    trace = recoup.Trace.read(path)
    trace.write(tmp_path / "again.rtrace")
    for again in (recoup.Trace.read(tmp_path / "again.rtrace"), changed(trace)):
        assert numbers_of(again) == numbers_of(trace)
        assert again._trace.events() == trace._trace.events()
    assert [kind for kind, _, _ in again._trace.events()] == [
        "segment",
        "external",
        "external",
        "segment",
        "op",
        "allocate",
        "free",
        "scope_exit",
    ]
