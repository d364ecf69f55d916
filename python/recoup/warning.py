"""The category of recoup's warnings."""


class RecoupWarning(UserWarning):
    """What recoup warns of. `warnings.filterwarnings` silences it, or makes errors of it."""
