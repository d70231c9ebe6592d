"""Where the command line writes: results to standard output, everything else to standard error."""

from rich.console import Console

output = Console()
errors = Console(stderr=True)
