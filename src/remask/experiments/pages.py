"""Pages and figures of stores and learners."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import remask
from remask.errors import RemaskError
from remask.experiments.jobs import RunError, runs_folder, unfinished_runs
from remask.experiments.results import has_published_settings, rerun_command
from remask.files import AnyPath
from remask.learner import Learner
from remask.learner.manifest import read_manifest
from remask.learner.results import Visit
from remask.learner.summary import summarise as summarise_learner
from remask.machine import StopRequest
from remask.outputs import check_output, write_output
from remask.reports.comparison import published_beside
from remask.reports.figures import write_figures
from remask.reports.history import LearnerNow, is_page, write_history
from remask.reports.page import page_data, page_html
from remask.store.cells import summarise
from remask.store.database import StoreError
from remask.store.filters import check_filters
from remask.store.store import Store

_SECONDS_BETWEEN_LOOKS = 2.0
_SECONDS_BETWEEN_RELOADS = 5.0


@dataclass(frozen=True)
class Written:
    """A report that was written."""

    page: Path
    trials: int
    """Number of trials in it."""
    damaged: list[StoreError]
    """Trials that could not be read, with the reasons."""
    figures: list[Path]


def write_report(
    store: Store,
    target: AnyPath,
    filters: Mapping[str, object] | None = None,
    *,
    figures: AnyPath | None = None,
    paper: bool = False,
) -> Written:
    """Write the page of the trials that pass the filters, and figures to the folder `figures`.

    With `paper`, the page also lists what was not run of the paper. Raises StoreError if no trial
    passes the filters.
    """
    check_output(Path(target), [store.path])
    if not store.count(filters):
        raise StoreError(
            f"{store.path} has no trial to report{' that passes the filters' * bool(filters)}."
            f" `remask demo`, `remask run` and `remask reproduce` make some."
        )
    return _write(store, Path(target), filters, paper, figures)


def _write(
    store: Store,
    target: Path,
    filters: Mapping[str, object] | None,
    paper: bool,
    figures: AnyPath | None = None,
    refresh_seconds: float | None = None,
) -> Written:
    damaged: list[StoreError] = []
    records = list(store.records(filters, damaged=damaged))
    cells = summarise(records)
    published = [cell for cell in cells if has_published_settings(cell.config)]
    data = {
        **page_data(cells, published, rerun_command, paper=paper),
        "title": "remask results",
        "generated": datetime.now(UTC).isoformat(timespec="seconds"),
        "store": store.path.name,
        "version": remask.__version__,
        "running": _running(store),
    }
    page = page_html(data, refresh_seconds=refresh_seconds)
    write_output(target, page.encode(), [store.path])
    drawn = [] if figures is None else write_figures(cells, figures, published_beside(published))
    return Written(target, len(records), damaged, drawn)


def watch(
    path: AnyPath,
    target: AnyPath,
    filters: Mapping[str, object],
    on_write: Callable[[Written], None] = lambda _: None,
    *,
    paper: bool = False,
) -> Written | None:
    """Write the page whenever the store or a run beside it changes, until asked to stop.

    Waits for a store that does not exist yet. Returns the last report, if any.
    """
    check_filters(filters)  # before waiting
    with StopRequest() as stop:
        while not Path(path).exists() and stop.signal is None:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        if stop.signal is not None:
            return None
        with Store(path, create=False) as store:
            write = partial(_write, store, Path(target), filters, paper)
            for _ in _changes(store, stop):
                on_write(write(refresh_seconds=_SECONDS_BETWEEN_RELOADS))
            last = write()  # which no longer reloads itself
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
    """The progress of unfinished runs."""
    try:
        runs = unfinished_runs(store.path)
    except (RunError, OSError):  # one has just ended, or is damaged, which `remask resume` reports
        return []
    return [
        {
            "name": run.name,
            "done": sum(store.is_done(config.hash) for config in run.configs),
            "trials": len(run.configs),
        }
        for run in runs
    ]


def learnt_visits(folder: AnyPath) -> Sequence[Visit]:
    """The visits of the learner in a folder. Raises LearnerError."""
    return read_manifest(Path(folder).expanduser()).history


def write_learner_history(folder: AnyPath, target: AnyPath, **own: str) -> str | None:
    """Write the history of a learner as a page, .html, or a figure, .png or .svg.

    `own` names the user's own code, as for `Learner.open`. A page without it has no measurements;
    returns the reason. Raises LearnerError.
    """
    visits = learnt_visits(folder)
    now = _learner_now(folder, own) if visits and is_page(target) else None
    write_history(Path(folder).expanduser().resolve().name, visits, target, now)
    return None if now is None else now.missing


def _learner_now(folder: AnyPath, own: Mapping[str, str]) -> LearnerNow:
    found = summarise_learner(folder)
    about = found.calibration
    calibration = (
        "not calibrated: there are no held-out samples"
        if about is None
        else f"Scores are divided by a temperature of {about.temperature:.2f}. The expected "
        f"calibration error on {about.samples} held-out samples is {about.ece_after:.1f} %; "
        f"{about.ece_before:.1f} % without the temperature."
    )
    try:
        learner = Learner.open(folder, **own)
        return LearnerNow(
            memory=found.classes,
            calibration=calibration,
            abstain=learner.abstentions(),
            confusion=learner.evaluate_held_out().confusion,
        )
    except RemaskError as error:
        return LearnerNow(memory=found.classes, calibration=calibration, missing=str(error))
