"""The laboratory: traces, layouts, orders and optima. A program in a budget does not load it."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recoup.offline import _C as _C
else:

    def __getattr__(name: str) -> Any:
        if name != "_C":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        importlib.import_module("recoup.native")  # the engine, to which the module is linked
        return importlib.import_module("recoup.offline._C")
