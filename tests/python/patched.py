"""What recoup replaces in PyTorch: every table of replacements that is there."""

import sys

from recoup._patching.late_patches import LatePatches
from recoup._patching.patches import Patches, Replacement
from recoup.run import _PATCHES as OF_SCOPES


def tables() -> dict[str, Patches | LatePatches]:
    """Found, not listed: a new one is in it as soon as `import recoup` loads what holds it."""
    return {
        f"{module}.{name}": value
        for module in sorted(sys.modules)
        if module.startswith("recoup.")
        for name, value in vars(sys.modules[module]).items()
        if isinstance(value, (Patches, LatePatches))
    }


def rows_of_scopes() -> list[Replacement]:
    """What is replaced while a scope is active."""
    return [row for table in OF_SCOPES for row in table.replacements]
