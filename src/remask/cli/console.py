"""Where the command line writes: results to standard output, everything else to standard error."""

import sys

from rich.console import Console

_WIDTH_OF_A_FILE = 160

# A pipe or a file has no width of its own, and a table in it must not be cut.
output = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
errors = Console(stderr=True)
