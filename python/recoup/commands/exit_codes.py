"""The exit codes of the command line. docs/commands.md lists them.

Python uses 1 and 120, and a program in `recoup run` uses its own codes. sysexits.h defines 64 to
78, test runners use 77 and 99, and `timeout`, shells and signals use 124 and above. So recoup's own
codes start at 80.
"""

USAGE_ERROR = 2
"""An argument, or a file that it names, is wrong. The same code as argparse."""
OUT_OF_BUDGET = 80
"""An OutOfBudgetError ended the program."""
NOT_WRITTEN = 81
"""The program or the command succeeded, but a requested file could not be written."""
DIFFERENT = 82
"""`recoup verify` found a difference."""
INTERRUPTED = 130
"""Ctrl-C. The same code as in a shell."""
