"""Arithmetic that keeps trials apart."""

from remask.nets.gradients import inner, per_trial, trial_sums

__all__ = ["inner", "per_trial", "trial_sums"]
