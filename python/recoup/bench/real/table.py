"""The table of a net, one line per case."""

from recoup.bench.real.summary import Line, Summary

COLUMNS = (
    "case", "step s", "over fastest", "over plain", "RSS GB", "before", "tensors GB", "compute",
    "replays", "evicted GB", "written GB", "read GB", "page faults", "bits",
)  # fmt: skip


def title(summary: Summary) -> str:
    return f"{summary.net}: {summary.what}; plain peak {summary.peak_bytes / 1e9:.2f} GB of tensors"


def cells(summary: Summary, line: Line) -> list[str]:
    """The cells for COLUMNS; of a case without runs only its status."""
    if not line.runs:
        return [line.label, line.status, *[""] * (len(COLUMNS) - 2)]
    differs = line.row["differs"]
    return [
        line.label,
        _number(line.seconds(), ".2f"),
        _number(line.over(summary.fastest), ".2f", "x"),
        _number(line.over(summary.plain), ".2f", "x"),
        _gigabytes(line.median("peak_rss_bytes")),
        _gigabytes(line.median("rss_before_bytes")),
        _gigabytes(line.peak_bytes),
        _number(line.median("compute_overhead"), ".2f", "x"),
        _number(_a_step(summary, line, "replays"), ",.0f"),
        _gigabytes(_a_step(summary, line, "evicted_bytes")),
        _gigabytes(_a_step(summary, line, "written_bytes")),
        _gigabytes(_a_step(summary, line, "read_bytes")),
        _number(_a_step(summary, line, "page_faults"), ",.0f"),
        f"not {', '.join(differs)}" if differs else "equal",
    ]


def _a_step(summary: Summary, line: Line, name: str) -> float | None:
    found = line.median(name)
    return None if found is None else found / summary.steps


def _gigabytes(count: float | None) -> str:
    return _number(None if count is None else count / 1e9, ".2f")


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"
