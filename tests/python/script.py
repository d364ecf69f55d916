"""Runs a script of the tests by hand, with the folders that it imports from:

python tests/python/script.py messages
python tests/python/script.py opinfo_worker --only add
"""

import os
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = [str(HERE / name) for name in ("support", "programs", ".")]
"""Folders of modules that tests and scripts of all folders import."""


def python_path(*more: str) -> str:
    """A PYTHONPATH with these folders, then `more`, then those of the present one."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, [*FOLDERS, *more, *known])))


def main() -> None:
    name = sys.argv[1].removesuffix(".py") if len(sys.argv) > 1 else ""
    found = sorted(HERE.glob(f"*/{name}.py")) if name else []
    if len(found) != 1:
        sys.exit(__doc__)
    os.environ["PYTHONPATH"] = python_path()  # for the processes that the script starts
    sys.argv[:] = [str(found[0]), *sys.argv[2:]]
    sys.path[:0] = [str(found[0].parent), *FOLDERS]
    runpy.run_path(str(found[0]), run_name="__main__")


if __name__ == "__main__":
    main()
