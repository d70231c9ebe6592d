"""Reports: what is in the store, for people. They read the store and nothing else."""

from remask.report.tables import results_table

__all__ = ["results_table"]
