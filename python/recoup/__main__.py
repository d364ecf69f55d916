"""`python -m recoup`."""

import sys

from recoup.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
