"""The log of a run: the same points, whoever trains them and however often it was stopped."""

import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import remask
from remask.config import TrialConfig
from remask.errors import RemaskError, Stopped
from remask.experiments import RunOptions
from remask.experiments.display import RunLog
from remask.experiments.jobs import Advanced
from remask.experiments.running import run_trials
from remask.loggers import Logger, TrialInfo
from remask.machine import StopRequest
from remask.store import Store, TrialRecord, export, read_export
from tests.runs.run_samples import events_of, planned

Call = tuple[str, int, int, tuple[tuple[str, float], ...]]


class Remembering(Logger):
    def __init__(self) -> None:
        self.steps: list[Call] = []
        self.tasks: list[Call] = []
        self.ends: list[str] = []

    def on_step(self, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]) -> None:
        self.steps.append((trial.name, step, task, tuple(values.items())))

    def on_task(self, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]) -> None:
        self.tasks.append((trial.name, step, task, tuple(values.items())))

    def on_end(self, trial: TrialInfo, step: int, values: Mapping[str, float]) -> None:
        assert values["class_il_A_T"] > 0
        self.ends.append(trial.name)


def trials(count: int = 2) -> list[TrialConfig]:
    return [
        remask.settings("split-digits", "derpp", 20).model_copy(update={"seed": n, "epochs": 1})
        for n in range(count)
    ]


def run(folder: Path, logger: Logger, **options: Any) -> list[TrialRecord]:
    folder.mkdir(exist_ok=True)
    with Store(folder / "results.db") as store:
        how = RunOptions(log=[logger], progress=False, **{"workers": 1, **options})
        assert not run_trials(store, trials(), how).failures
        return list(store.records())


def stop_in_second_task(store: Store, configs: list[TrialConfig], options: RunOptions) -> None:
    """Stop one step into the task after the next that ends."""
    run = planned(store, configs, stack=len(configs))
    stop = StopRequest()
    learnt = None
    with RunLog(run, options) as log, suppress(Stopped):
        for event in events_of(store, run, options=options, stop=stop):
            log.take(event)
            if isinstance(event, Advanced):
                learnt = learnt or event.task
                stop.signal = signal.SIGTERM if event.task > learnt else None
    assert stop.signal is not None


def test_every_trial_logs_its_losses_its_tasks_and_its_end(tmp_path: Path) -> None:
    logger = Remembering()
    records = run(tmp_path, logger)
    names = {name for name, *_ in logger.steps}
    assert len(names) == 2
    assert sorted(logger.ends) == sorted(names)
    assert [task for name, _, task, _ in logger.tasks if name == min(names)] == [1, 2, 3, 4, 5]
    assert dict(logger.tasks[-1][3])["class_il/task 5"] == records[1].class_il[4][4]
    last = dict(logger.steps[-1][3])
    assert [*last] == ["loss", "loss/stream", "loss/distillation", "loss/replay"]
    for record in records:
        assert record.losses is not None
        assert record.losses.names == ("loss", "stream", "distillation", "replay")
        assert {*record.losses.learning} == {0, 1, 2, 3, 4}
        expected = last["loss"] if record.seed == 1 else None
        if expected is not None:
            assert record.losses.values[-1][0] == pytest.approx(expected, rel=1e-5)


def test_a_run_that_was_stopped_logs_every_point_once(tmp_path: Path) -> None:
    whole, parts = Remembering(), Remembering()
    run(tmp_path / "whole", whole)
    path = tmp_path / "stopped" / "losses.csv"
    path.parent.mkdir()
    options = RunOptions(log=[f"csv:{path}"], progress=False, workers=1)
    with Store(tmp_path / "stopped" / "results.db") as store:
        for _ in range(2):
            stop_in_second_task(store, trials(), options)
    with Store(tmp_path / "stopped" / "results.db") as store:
        how = RunOptions(log=[f"csv:{path}", parts], progress=False, workers=1)
        run_trials(store, trials(), how)
    # To a new logger, the points before the stop come again.
    assert sorted(parts.steps) == sorted(whole.steps)
    rows = path.read_text().splitlines()
    assert len(rows) == len({*rows})
    logged = [row.rsplit(",", 5) for row in rows if row.split(",")[1] == "step"]
    written = [(row[0], int(row[2]), int(row[3]), *row[4:]) for row in logged]
    assert sorted(written) == sorted(
        (name, step, task, term, f"{value:.9g}")
        for name, step, task, values in whole.steps
        for term, value in values
    )


@pytest.mark.processes
def test_worker_processes_log_what_one_process_logs(tmp_path: Path) -> None:
    one, two = Remembering(), Remembering()
    run(tmp_path / "one", one)
    run(tmp_path / "two", two, workers=2, stack=1)
    assert sorted(two.steps) == sorted(one.steps)
    assert sorted(two.tasks) == sorted(one.tasks)


def test_losses_can_go_into_the_store_alone_and_into_exports(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        options = RunOptions(log_every=5, workers=1, progress=False)
        run_trials(store, trials(1), options)
        (record,) = store.records()
    assert record.losses is not None
    assert record.losses.steps[:2] == (5, 10)
    export([record], "json", tmp_path / "trials.json")
    assert read_export(tmp_path / "trials.json") == [record]
    assert len(record.losses.model_dump_json()) < 20_000


def test_a_log_that_cannot_be_written_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        options = RunOptions(log=[f"csv:{tmp_path}"], workers=1, progress=False)
        with pytest.raises(RemaskError, match="cannot write"):
            run_trials(store, trials(1), options)
        assert store.count() == 0
