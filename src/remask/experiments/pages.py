"""From the store to the page, and to figures."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import remask
from remask.durable import AnyPath, write_output
from remask.experiments.rerun import rerun_command
from remask.planning import changed_settings
from remask.reports.figures import write_figures
from remask.reports.page import page_html
from remask.reports.page_data import page_data, published_beside
from remask.results import Store, StoreError, check_filters, summarise
from remask.runs import RunError, StopRequest, runs_folder, unfinished_runs

_SECONDS_BETWEEN_LOOKS = 2.0
_SECONDS_BETWEEN_RELOADS = 5.0


@dataclass(frozen=True)
class Written:
    """What a report consists of."""

    page: Path
    trials: int
    """How many trials are in it."""
    damaged: list[StoreError]
    """Trials that could not be read, and why."""
    figures: list[Path]


def write_report(
    store: Store,
    target: AnyPath,
    filters: Mapping[str, object] | None = None,
    *,
    figures: AnyPath | None = None,
    refresh_seconds: float | None = None,
    paper: bool = False,
) -> Written:
    """Write the page of the trials that pass the filters, and figures if a folder is named.

    With `paper`, the page also lists what the paper has and the store has not.
    """
    target = Path(target)
    damaged: list[StoreError] = []
    records = list(store.records(filters, damaged=damaged))
    cells = summarise(records)
    published = [cell for cell in cells if not changed_settings(cell.config)]
    data = {
        **page_data(cells, published, rerun_command, paper=paper),
        "title": "remask results",
        "generated": datetime.now(UTC).isoformat(timespec="seconds"),
        "store": store.path.name,
        "version": remask.__version__,
        "running": _running(store),
    }
    write_output(target, page_html(data, refresh_seconds=refresh_seconds).encode(), [store.path])
    drawn = []
    if figures is not None:
        drawn = write_figures(cells, figures, published_beside(published))
    return Written(target, len(records), damaged, drawn)


def check_trials(store: Store, filters: Mapping[str, object]) -> None:
    """Refuse to report on nothing."""
    if not store.count(filters):
        raise StoreError(
            f"{store.path} has no trial to report{' that passes the filters' * bool(filters)}."
            f" `remask demo`, `remask run` and `remask reproduce` make some."
        )


def watch(
    path: AnyPath,
    target: AnyPath,
    filters: Mapping[str, object],
    on_write: Callable[[Written], None] = lambda _: None,
    *,
    paper: bool = False,
) -> Written | None:
    """Write the page whenever the store or a run beside it has changed, until asked to stop.

    A store that is not there yet is waited for. Returns what was written last, if anything was.
    """
    check_filters(filters)  # now, and not when the store is there
    with StopRequest() as stop:
        while not Path(path).exists() and stop.signal is None:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        if stop.signal is not None:
            return None
        with Store(path, create=False) as store:
            write = partial(write_report, store, target, filters, paper=paper)
            for _ in _changes(store, stop):
                on_write(write(refresh_seconds=_SECONDS_BETWEEN_RELOADS))
            last = write()  # it no longer reloads itself
    on_write(last)
    return last


def _changes(store: Store, stop: StopRequest) -> Iterator[None]:
    """Yield whenever the store or a run beside it has changed."""
    seen = None
    while stop.signal is None:
        state = (store.changes(), sorted(runs_folder(store.path).glob("*")))
        if state != seen:
            yield
            seen = state
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _running(store: Store) -> list[dict[str, object]]:
    """The runs that are not finished, and how far each is."""
    try:
        runs = unfinished_runs(store.path)
    except (RunError, OSError):  # one has just ended, or is damaged: `remask resume` says more
        return []
    found = []
    for run in runs:
        configs = [config for job in run.jobs for config in job.configs]
        done = sum(store.is_done(config.hash) for config in configs)
        found.append({"name": run.name, "done": done, "trials": len(configs)})
    return found
