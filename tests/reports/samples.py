"""What `page_data` makes of records, for tests."""

from collections.abc import Sequence
from typing import Any

from remask.reports.page_data import page_data
from remask.results import TrialRecord, summarise


def report_data(records: Sequence[TrialRecord], *, published: bool = False) -> dict[str, Any]:
    """The page's data of records whose settings are all the published ones, or none."""
    cells = summarise(records)
    return page_data(cells, cells if published else [], lambda config, seeds: "remask run")
