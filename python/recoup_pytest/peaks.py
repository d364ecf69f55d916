"""The file of peaks: the most tensor memory of each test, in bytes, as JSON."""

from __future__ import annotations

import json
from pathlib import Path

_LEAST_RISE = 4096
"""A rise in bytes that is no regression, whatever its fraction."""


class Peaks:
    """Peaks of a file, and those of this session."""

    def __init__(self, file: Path, tolerance: float, *, update: bool) -> None:
        """tolerance: rise that is no regression, in percent. update: replaces the file's peaks."""
        self._file = file
        self._tolerance = tolerance
        self._update = update
        self._known: dict[str, int] = {}
        self._new: dict[str, int] = {}

    @classmethod
    def read(cls, file: str, tolerance: float, *, update: bool) -> Peaks:
        """Reads a file, which may not exist yet. Raises OSError, or ValueError for another one."""
        peaks = cls(Path(file).absolute(), tolerance, update=update)
        if peaks._file.exists():
            peaks._known = _parsed(peaks._file)
        elif not peaks._file.parent.is_dir():
            raise ValueError(f"{file} cannot be written: its directory does not exist")
        return peaks

    def rise(self, test: str, peak: int) -> str:
        """Why `peak` is a regression; empty if it is none."""
        before = self._known.get(test)
        if self._update or before is None:
            return ""
        if peak <= max(before * (1 + self._tolerance / 100), before + _LEAST_RISE):
            return ""
        return (
            f"peak of tensor memory: {peak:,} bytes, more than {before:,} in {self._file} and the "
            f"allowed {self._tolerance:g} %. --recoup-peaks-update accepts the new peak"
        )

    def add(self, test: str, peak: int) -> None:
        """Notes a peak of this session."""
        self._new[test] = peak

    def write(self) -> None:
        """Adds tests that the file lacks; with `update`, replaces the peaks of this session."""
        new = self._new | self._known if not self._update else self._known | self._new
        if new != self._known:
            text = json.dumps({"peak_bytes": dict(sorted(new.items()))}, indent=2) + "\n"
            whole = self._file.with_name(f"{self._file.name}.new")
            whole.write_text(text, encoding="utf-8")
            whole.replace(self._file)


def _parsed(file: Path) -> dict[str, int]:
    try:
        peaks = json.loads(file.read_text(encoding="utf-8"))["peak_bytes"]
        if all(type(peak) is int and peak >= 0 for peak in peaks.values()):
            return dict(peaks)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise ValueError(f"{file} is not a file of --recoup-peaks")
