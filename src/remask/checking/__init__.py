"""Checks of a custom method: what fails silently is found before it costs a run."""

from remask.checking.checks import check_method
from remask.checking.subject import Finding, Outcome

__all__ = ["Finding", "Outcome", "check_method"]
