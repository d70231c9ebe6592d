"""Trials as the store's tests need them."""

import csv
import io
import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from remask.config import TrialConfig
from remask.data.classes import split_classes
from remask.store import TrialRecord, export
from remask.store.cells import TrialSummary
from remask.store.store import COLUMNS, sealed

NAN = math.nan


def make_config(**settings: Any) -> TrialConfig:
    basics = {"benchmark": "split-digits", "method": "er", "lr": 0.1, "batch": 10, "epochs": 1}
    return TrialConfig.model_validate(
        {**basics, "buffer": 200, "replay_batch": 10, "seed": 1, **settings}
    )


def make_record(config: TrialConfig | None = None, **parts: Any) -> TrialRecord:
    basics: dict[str, Any] = {
        "class_il": [[99.0, NAN], [50.5, 90.25]],
        "task_il": [[99.5, NAN], [98.0, 97.0]],
        "confidence": [0.1, 0.2, 0.7, 0.9],
        "versions": {"remask": "0.1.0", "torch": "2.6.0", "numpy": "1.26.0", "python": "3.11.0"},
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "machine": {"platform": "Linux", "cpu": "a fast one", "cores": 2},
        "started": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "seconds": 12.5,
        "created": datetime(2026, 1, 31, 13, tzinfo=UTC),
    }
    values = {**basics, "config": config if config is not None else make_config(), **parts}
    if values["config"].validation:  # as good there as at the test, unless said otherwise
        names = ("class_il", "task_il")
        values = {**{f"validation_{name}": values[name] for name in names}, **values}
    if values["config"].evaluate_every and values["class_il"] and "curve" not in values:
        values["curve"] = curve_with_drop(len(values["class_il"]), 90.0, 10.0)
    return TrialRecord.model_validate({**_classes(values), **values})


def curve_with_drop(tasks: int, accuracy: float, drop: float) -> dict[str, Any]:
    """Tasks of 100 steps: old ones fall by `drop` 5 steps after a switch, and recover."""
    seen = np.tri(tasks)
    dipped = np.where(np.tri(tasks, k=-1) > 0, accuracy - drop, np.where(seen > 0, accuracy, NAN))
    ended = np.where(seen > 0, accuracy, NAN)
    rows = [row for both in zip(dipped.tolist(), ended.tolist(), strict=True) for row in both]
    return {
        "steps": [step for task in range(tasks) for step in (100 * task + 5, 100 * task + 100)],
        "learning": [task for task in range(tasks) for _ in range(2)],
        "class_il": rows,
        "task_il": rows,
    }


def _classes(values: dict[str, Any]) -> dict[str, Any]:
    """Tasks and class names for results of that size: dealt by label, and called by it."""
    num_tasks = len(values["class_il"])
    num_classes = len(values["confidence"]) or 2 * num_tasks
    if not 1 <= num_tasks <= num_classes:
        return {}
    names = [str(label) for label in range(num_classes)]
    return {"tasks": split_classes(num_classes, num_tasks), "class_names": names}


def held_out_record(**settings: Any) -> TrialRecord:
    """A trial that held data out: A_T on it is 60 in Class-IL and 80 in Task-IL."""
    held_out = {
        "validation_class_il": [[90.0, NAN], [40.0, 80.0]],
        "validation_task_il": [[95.0, NAN], [85.0, 75.0]],
    }
    return make_record(make_config(**{"validation": 0.1, **settings}), **held_out)


def make_records(number: int, **settings: Any) -> list[TrialRecord]:
    """Trials that differ in their seed."""
    return [make_record(make_config(seed=seed, **settings)) for seed in range(number)]


def trial_with_accuracy(
    config: TrialConfig,
    accuracy: float,
    *,
    forgetting: float = 0.0,
    task_il: float | None = None,
    confidence: Sequence[float] = (0.5,) * 10,
    validation: float | None = None,
) -> TrialRecord:
    """A trial of five tasks with a given A_T and F_T; in Task-IL, that accuracy everywhere.

    `validation` is the accuracy on everything that was held out, if anything was.
    """
    held_out = np.where(np.tri(5) > 0, validation, NAN).astype(float).tolist() if validation else []
    told = accuracy if task_il is None else task_il
    lost = forgetting * np.tri(5, k=-1)  # at every task's own end it is `forgetting` better ...
    matrix = np.where(np.tri(5) > 0, accuracy + forgetting - lost, NAN)
    matrix[-1, :] = accuracy  # ... and the last task is as good as the others are in the end
    return make_record(
        config,
        class_il=matrix.tolist(),
        task_il=np.where(np.tri(5) > 0, told, NAN).tolist(),
        confidence=list(confidence),
        validation_class_il=held_out,
        validation_task_il=held_out,
    )


def contents(folder: Path) -> dict[str, bytes]:
    """What the files of a folder hold; an empty log and its index, which SQLite leaves, are none.

    Without them nothing is lost, and with them nothing is changed.
    """
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix != ".db-shm"
        and not (path.suffix == ".db-wal" and path.stat().st_size == 0)
    }


def redigest(path: Path) -> None:
    """Give every row the digest of its contents, as a forger would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        for row in connection.execute(f"SELECT {', '.join(COLUMNS)} FROM trials").fetchall():
            *_, details_digest, digest, _ = sealed(TrialSummary(*row[:-3]), row[-1])
            connection.execute(
                "UPDATE trials SET details_digest = ?, digest = ? WHERE config_hash = ?",
                [details_digest, digest, row[0]],
            )


def exported(records: Sequence[TrialRecord], name: str) -> str:
    """The text of an export in the format `name`."""
    with TemporaryDirectory() as folder:
        target = Path(folder) / "out"
        assert export(records, name, target) == len(records)
        return target.read_bytes().decode()


def table(records: Sequence[TrialRecord]) -> list[dict[str, str]]:
    """The rows of an export as CSV."""
    return list(csv.DictReader(io.StringIO(exported(records, "csv"), newline="")))


def diverged(config: TrialConfig | None = None) -> TrialRecord:
    return make_record(config, status="diverged", diverged_at=7)


def failed(config: TrialConfig | None = None, error: str = "no memory left") -> TrialRecord:
    nothing: dict[str, Any] = {"class_il": [], "task_il": [], "confidence": []}
    return make_record(config, status="failed", error=error, **nothing)
