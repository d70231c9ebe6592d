"""From a job's results to rows of the store; or to a file, if the store was taken away."""

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import remask
from remask.durable import make_folder, write_atomically
from remask.errors import RemaskError
from remask.results import Answers, ChoiceRecord, Curve, Store, StoreError, TrialRecord, export
from remask.runs.events import Event, Failed, Finished
from remask.runs.plans import Job, Run


def store_end(store: Store, run: Run, job: Job, event: Finished | Failed) -> None:
    """Store how a job has ended; only then its checkpoints may go."""
    if isinstance(event, Failed):
        for config in job.configs:
            store.add(TrialRecord.failure(config, event.error, **provenance()))
        return
    for record in records_of(event):
        store.add(record, replace=run.again)
    if run.again:
        write_atomically(run.mark(job), b"")
    shutil.rmtree(run.checkpoints(job), ignore_errors=True)


def records_of(event: Event) -> Iterator[TrialRecord]:
    """The trials that have come to their end."""
    if not isinstance(event, Finished):
        return
    for result in event.results:
        yield TrialRecord(
            config=result.config,
            title=result.title,
            status="finished" if result.diverged_at is None else "diverged",
            diverged_at=result.diverged_at,
            error=None,
            class_il=result.class_il,
            task_il=result.task_il,
            validation_class_il=result.validation_class_il,
            validation_task_il=result.validation_task_il,
            confidence=result.confidence,
            answers=None if result.answers is None else Answers(**vars(result.answers)),
            flops=event.flops,
            memory_bytes=result.memory_bytes,
            curve=None if result.curve is None else Curve(**vars(result.curve)),
            choices=tuple(
                ChoiceRecord(**asdict(choice), reason=choice.reason) for choice in result.choices
            ),
            tasks=result.tasks,
            class_names=result.class_names,
            own_code=event.own_code,
            started=event.started,
            # Trials of a stack run at once: each has its share of the time.
            seconds=event.seconds / len(event.results),
            **(event.ran_on or provenance()),
        )


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


@cache
def provenance() -> dict[str, Any]:
    """`versions`, `commit` and `machine` of this process, as the store keeps them."""
    return {
        "versions": {
            "remask": remask.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy")},
        },
        "commit": _commit(),
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cores": os.cpu_count() or 1,
        },
    }


def _commit() -> str | None:
    """The commit of remask's own source, if it runs from a checkout."""
    root = Path(remask.__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None  # installed: a repository further up would be somebody else's
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
