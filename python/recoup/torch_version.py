"""Whether the module that was built can be loaded into the PyTorch that is there."""

import torch

from recoup._build import TORCH_VERSION


def require(found: str) -> None:
    """Raises ImportError when `found` is another PyTorch than the one that recoup was built for.

    To be called before the module is loaded: that would end in a missing symbol, or worse.
    """
    if _release(found) != _release(TORCH_VERSION):
        raise ImportError(
            f"recoup was built for PyTorch {TORCH_VERSION}, and this is PyTorch {found}: install "
            f"torch=={TORCH_VERSION}, or build recoup again with the PyTorch that is here "
            "(pip install --no-build-isolation --force-reinstall --no-deps recoup's folder)"
        )


def _release(version: str) -> str:
    """Without what says how it was built, as in 2.13.0+cpu: that does not matter here."""
    return version.partition("+")[0]


require(torch.__version__)
