"""From a job's results to rows of the store; or to a file, if the store was taken away."""

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from remask.durable import make_folder, write_atomically
from remask.errors import RemaskError
from remask.record import TrialRecord
from remask.results import Store, StoreError, export
from remask.runs.events import Failed, Finished
from remask.runs.plans import Job, Run


def store_end(store: Store, run: Run, job: Job, event: Finished | Failed) -> None:
    """Store how a job has ended; only then its checkpoints may go."""
    if isinstance(event, Failed):
        for config in job.configs:
            store.add(TrialRecord.failure(config, event.error))
        return
    for record in event.records:
        store.add(record, replace=run.again)
    if run.again:
        write_atomically(run.mark(job), b"")
    shutil.rmtree(run.checkpoints(job), ignore_errors=True)


def rescued(store: Store, computed: Sequence[TrialRecord], folder: Path) -> StoreError:
    """Write what the lost file held, and what was computed since, beside its place.

    Where that cannot be written, the folder for temporary files is taken instead. Gives the error
    to end the run with. `folder` is where the run's checkpoints are.
    """
    trials = {record.config_hash: record for record in computed}
    with suppress(StoreError):  # what cannot be read any more must not cost the new ones
        trials |= {record.config_hash: record for record in store.held()}
    begun = f"{store.path} was moved, deleted or replaced while a run was writing to it. The run "
    if not trials:
        return StoreError(
            f"{begun}has stopped before its first result; its checkpoints are in {folder}. The "
            f"same command goes on from there."
        )
    name = f"{store.path.name}.rescued-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}.json"
    # What took the store away, or a full disk, may keep its folder from being written, too.
    for place in (store.path.parent, Path(tempfile.gettempdir())):
        target = place / name
        try:
            make_folder(place)
            export(trials.values(), "json", target)
        except RemaskError as error:
            reason = error
            continue
        return StoreError(
            f"{begun}has stopped. The {len(trials)} trials that were in it, or were to be, are in "
            f"{target}: `remask results import {target} --store {store.path}` brings them back, "
            f"and then the same command goes on from the checkpoints in {folder}."
        )
    return StoreError(
        f"{begun}has stopped, and {len(trials)} trials that were in it could not be kept "
        f"either: {reason}"
    )
