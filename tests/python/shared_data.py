"""Where the published data lie that are no part of this project; tests skip without them."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("RECOUP_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))
