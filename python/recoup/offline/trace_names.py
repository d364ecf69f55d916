"""Which files are traces, by their names."""

_DTR_LOGS = (".log", ".log.gz")


def is_dtr_log(path: str) -> bool:
    """Whether it is a log of the DTR authors, and no trace of `recoup run --trace`."""
    return path.endswith(_DTR_LOGS)
