"""The harness of recoup's bench, from the sources: this process runs before recoup is built.

So the package is known by its folder alone; its `__init__` would load the engine.
"""

import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]

_package = ModuleType("recoup")
_package.__path__ = [str(ROOT / "python/recoup")]
sys.modules.setdefault("recoup", _package)

from recoup._reporting.files import write_atomically  # noqa: E402
from recoup.bench.harness.processes import Ended, call, supervise  # noqa: E402
from recoup.bench.harness.results import Results  # noqa: E402

__all__ = ["ROOT", "Ended", "Results", "call", "supervise", "write_atomically"]
