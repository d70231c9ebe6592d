"""Behind `remask report`: from the store to the page.

Imported when a command needs it, because torch takes seconds to import.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import remask
from remask.asking import changed_settings
from remask.cli.rerun import rerun_command
from remask.durable import write_output
from remask.launch import RunError, unfinished_runs
from remask.reports import Knowledge, page_data, page_html
from remask.store import Store, StoreError, config_hash

KNOWLEDGE = Knowledge(
    is_published=lambda config: not changed_settings(config), command=rerun_command
)


def write_page(
    store: Store,
    target: Path,
    filters: Mapping[str, object] | None = None,
    *,
    refresh_seconds: float | None = None,
) -> list[StoreError]:
    """Write the page of the trials that pass the filters; returns what could not be read."""
    records, damaged = store.sound_records(filters)
    data = {
        **page_data(records, KNOWLEDGE),
        "title": "remask results",
        "generated": datetime.now(UTC).isoformat(timespec="seconds"),
        "store": store.path.name,
        "version": remask.__version__,
        "running": _running(store),
    }
    write_output(target, page_html(data, refresh_seconds=refresh_seconds).encode())
    return damaged


def _running(store: Store) -> list[dict[str, object]]:
    """The runs that are not finished, and how far each is."""
    try:
        runs = unfinished_runs(store.path)
    except (RunError, OSError):  # one has just ended, or is damaged: `remask resume` says more
        return []
    found = []
    for run in runs:
        configs = [config for job in run.jobs for config in job.configs]
        done = sum(store.is_done(config_hash(config)) for config in configs)
        found.append({"name": run.name, "done": done, "trials": len(configs)})
    return found
