"""The folder of published data that are not part of this project; without it, tests skip."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("RECOUP_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))
