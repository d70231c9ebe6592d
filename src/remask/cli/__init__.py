"""The command line: thin. It parses, calls, and prints."""

from remask.cli.app import main

__all__ = ["main"]
