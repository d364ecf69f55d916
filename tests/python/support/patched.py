"""All tables of attributes of PyTorch that recoup replaces."""

import sys

from recoup._patching.late_patches import LatePatches
from recoup._patching.patches import Patches, Replacement
from recoup.run import _PATCHES as OF_SCOPES


def tables() -> dict[str, Patches | LatePatches]:
    """Finds the tables in loaded modules, so that a new table is included without being listed."""
    return {
        f"{module}.{name}": value
        for module in sorted(sys.modules)
        if module.startswith("recoup.")
        for name, value in vars(sys.modules[module]).items()
        if isinstance(value, (Patches, LatePatches))
    }


def rows_of_scopes() -> list[Replacement]:
    """The attributes that are replaced while a scope is active."""
    return [row for table in OF_SCOPES for row in table.replacements]
