"""Pictures of results, drawn by matplotlib, which is loaded when the first one is drawn."""

import io
from pathlib import Path
from typing import Any

from recoup._reporting.files import write_atomically


def panels(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """A figure, and the array of its panels.

    size: width and height in inches.
    options: those of matplotlib's `Figure.subplots`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def grid(count: int, most_columns: int) -> tuple[int, int]:
    """Rows and columns for `count` panels, at least one, with at most `most_columns` columns."""
    columns = min(most_columns, max(1, count))
    return -(-max(1, count) // columns), columns


def save(figure: Any, path: Path, dpi: int) -> None:
    """Writes the figure in the format of the file's suffix. Raises OSError.

    Equal data gives an equal picture: there is no time or version in the file.
    """
    metadata = {"Software": None} if path.suffix == ".png" else None
    picture = io.BytesIO()
    figure.savefig(picture, dpi=dpi, format=path.suffix[1:], metadata=metadata)
    write_atomically(path, picture.getvalue())
