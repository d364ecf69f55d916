"""The program's own lines: frames whose code belongs neither to PyTorch nor to recoup."""

import os
import sys
import warnings
from pathlib import Path

import torch

from recoup import _C
from recoup.warning import RecoupWarning

_LIBRARIES = (os.path.dirname(torch.__file__) + os.sep, f"{Path(__file__).parents[1]}{os.sep}")

_C.pass_over_lines(_LIBRARIES)


def warn_at_program(message: str) -> None:
    """Issues a RecoupWarning at the innermost line of the program."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
        level += 1
    warnings.warn(f"recoup: {message}", RecoupWarning, stacklevel=level)
