"""Reports: tables, figures and pages of stored results, and comparisons with published ones."""
