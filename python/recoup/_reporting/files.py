"""Names of files, and files that are there in whole or not at all."""

import os
import tempfile
from pathlib import Path


def utf8_name(path: str | bytes | os.PathLike[str]) -> str:
    """A file's name as the engine takes it. Raises ValueError for one that is not UTF-8."""
    name = os.fsdecode(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name of a file must be UTF-8; got {os.fsencode(name)!r}") from None
    return name


def check_writable(path: Path) -> None:
    """Before work whose result is to go there. Raises OSError when it could not be written."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.absolute().parent}")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{path.absolute().parent} is not writable")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Readers see the old file or the new one, never a part."""
    handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        # mkstemp makes private files; a report gets the rights that any other file would have.
        os.umask(mask := os.umask(0))
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
