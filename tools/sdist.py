"""Makes the sdist: python tools/sdist.py FOLDER. Needs requirements-build.txt."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from build_backend import build_sdist

folder = Path(sys.argv[1]).resolve()
os.chdir(Path(__file__).parents[1])
print(folder / build_sdist(str(folder)))
