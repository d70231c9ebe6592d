"""Arithmetic that keeps trials apart."""

from remask.nets.trialwise import inner, per_trial, trial_sums

__all__ = ["inner", "per_trial", "trial_sums"]
