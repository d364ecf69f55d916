"""The category of recoup's warnings."""


class RecoupWarning(UserWarning):
    """A warning of recoup's. `warnings.filterwarnings` silences it or turns it into an error."""
