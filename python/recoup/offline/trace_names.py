"""Recognizes kinds of trace files by their names."""

_DTR_LOGS = (".log", ".log.gz")


def is_dtr_log(path: str) -> bool:
    """Whether the file is a log of the DTR authors, and not a trace of `recoup run --trace`."""
    return path.endswith(_DTR_LOGS)
