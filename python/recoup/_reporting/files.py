"""Names of files, and atomic writes."""

import os
import tempfile
from pathlib import Path


def utf8_name(path: str | bytes | os.PathLike[str]) -> str:
    """A file's name in the engine's form. Raises ValueError if it is not UTF-8."""
    name = os.fsdecode(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a file name must be UTF-8; got {os.fsencode(name)!r}") from None
    return name


def check_writable(path: Path) -> None:
    """Raises OSError if a file could not be written there; call it before the work."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.absolute().parent}")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{path.absolute().parent} is not writable")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file so that readers see either the old content or the new one.

    Raises OSError, which names the file and not a temporary one.
    """
    try:
        _write(path.absolute(), content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path.absolute())) from None


def _write(path: Path, content: str | bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        # mkstemp makes private files; give the file the permissions of an ordinary new file.
        os.umask(mask := os.umask(0))
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
