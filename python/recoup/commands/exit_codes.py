"""The exit codes of the command line. docs/command-line.md has their table.

Python itself ends with 1 and 120, and those of a program in `recoup run` are its own. 64 to 78 are
in sysexits.h, 77 and 99 have a meaning for test runners, and from 124 on `timeout`, shells and
signals have theirs. So the codes of recoup's own are from 80 on.
"""

USAGE_ERROR = 2
"""The arguments, or a file that they name, are wrong. As Python's argparse."""
OUT_OF_BUDGET = 80
"""An OutOfBudgetError has ended the program."""
NOT_WRITTEN = 81
"""The program, or the command, is done, but a file that was asked for could not be written."""
INTERRUPTED = 130
"""Ctrl-C, as of a shell."""
