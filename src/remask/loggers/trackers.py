"""Experiment trackers: TensorBoard, Weights & Biases, MLflow. Each needs an optional package."""

import hashlib
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from remask.files import make_folder
from remask.loggers.logger import Logger, Reached, Source

_MEASURED_AT_TASKS = "class_il/mean", "task_il/mean"


def _scalars(event: str, task: int | None, values: Mapping[str, float]) -> dict[str, float]:
    """The values of an event by names that no other kind of event has."""
    if event == "end":
        return {f"end/{name}": value for name, value in values.items()}
    return {**values, "task": task or 0} if event == "step" else dict(values)


class TensorBoardLogger(Logger):
    """A run per trial, in a folder of its name."""

    def __init__(self, folder: str) -> None:
        import_module("tensorboard")  # torch's own message is less clear
        self._writer: Any = import_module("torch.utils.tensorboard").SummaryWriter
        self._folder = Path(folder)
        make_folder(self._folder)
        self._writers: dict[str, Any] = {}

    def reached(self, source: Source) -> Reached:
        """See `Logger.reached`."""
        folder = self._folder / source.name
        if not folder.exists():
            return Reached()
        reader: Any = import_module("tensorboard.backend.event_processing.event_accumulator")
        events = reader.EventAccumulator(str(folder), size_guidance={"scalars": 1})
        events.Reload()
        tags = events.Tags()["scalars"]
        steps = {tag: events.Scalars(tag)[-1].step for tag in tags}
        at_tasks = (steps[tag] for tag in _MEASURED_AT_TASKS if tag in steps)
        ended = any(tag.startswith("end/") for tag in tags)
        return Reached(steps.get("loss", 0), max(at_tasks, default=0), ended)

    def flush(self) -> None:
        """See `Logger.flush`."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """See `Logger.close`."""
        for writer in self._writers.values():
            writer.close()

    def on_event(
        self, event: str, source: Source, step: int, task: int | None, values: Mapping[str, float]
    ) -> None:
        """See `Logger.on_event`."""
        if source.name not in self._writers:
            writer = self._writer(str(self._folder / source.name), max_queue=1000)
            settings = "\n".join(f"    {name} = {v}" for name, v in source.settings.items())
            writer.add_text("settings", settings)
            self._writers[source.name] = writer
        for name, value in _scalars(event, task, values).items():
            self._writers[source.name].add_scalar(name.replace(" ", "_"), value, step)


class WandbLogger(Logger):
    """A run per trial in a project. With WANDB_MODE=offline nothing leaves the machine."""

    def __init__(self, project: str) -> None:
        self._wandb: Any = import_module("wandb")
        self._project = project
        self._runs: dict[str, Any] = {}

    def on_event(
        self, event: str, source: Source, step: int, task: int | None, values: Mapping[str, float]
    ) -> None:
        """See `Logger.on_event`."""
        run = self._run(source)
        if event != "end":
            run.log({**_scalars(event, task, values), "step": step})
            return
        run.summary.update(dict(values))
        run.finish()
        del self._runs[source.name]

    def close(self) -> None:
        """See `Logger.close`."""
        for run in self._runs.values():
            run.finish()

    def _run(self, source: Source) -> Any:
        if source.name not in self._runs:
            # A trial that is resumed continues its run.
            run = self._wandb.init(
                project=self._project,
                id=hashlib.sha256(source.name.encode()).hexdigest()[:16],
                name=source.name,
                config=dict(source.settings),
                resume="allow",
                reinit="create_new",
                settings=self._wandb.Settings(silent=True, console="off"),
            )
            run.define_metric("step")
            run.define_metric("*", step_metric="step")
            self._runs[source.name] = run
        return self._runs[source.name]


class MlflowLogger(Logger):
    """A run per trial, in the experiment `remask` of a folder, or of a server's address."""

    def __init__(self, target: str) -> None:
        # Later versions need this to keep runs as files in a folder.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        address = target if "://" in target else Path(target).resolve().as_uri()
        self._client: Any = import_module("mlflow").MlflowClient(tracking_uri=address)
        found = self._client.get_experiment_by_name("remask")
        self._experiment = (
            self._client.create_experiment("remask") if found is None else found.experiment_id
        )
        self._runs: dict[str, str] = {}

    def reached(self, source: Source) -> Reached:
        """See `Logger.reached`."""
        if (run := self._find(source)) is None:
            return Reached()

        def last(name: str) -> int:
            history = self._client.get_metric_history(run, _mlflow_name(name))
            return max((point.step for point in history), default=0)

        metrics = self._client.get_run(run).data.metrics
        ended = any(name.startswith("end.") for name in metrics)
        return Reached(last("loss"), max(map(last, _MEASURED_AT_TASKS)), ended)

    def on_event(
        self, event: str, source: Source, step: int, task: int | None, values: Mapping[str, float]
    ) -> None:
        """See `Logger.on_event`."""
        run = self._run(source)
        for name, value in _scalars(event, task, values).items():
            self._client.log_metric(run, _mlflow_name(name), value, step=step)
        if event == "end":
            self._client.set_terminated(run)

    def _run(self, source: Source) -> str:
        if source.name not in self._runs:
            found = self._find(source)
            if found is None:
                run = self._client.create_run(self._experiment, run_name=source.name)
                found = str(run.info.run_id)
                for name, value in source.settings.items():
                    self._client.log_param(found, name, value)
            self._runs[source.name] = found
        return self._runs[source.name]

    def _find(self, source: Source) -> str | None:
        name = source.name.replace("'", "")
        found = self._client.search_runs(
            [self._experiment], f"attributes.run_name = '{name}'", max_results=1
        )
        return str(found[0].info.run_id) if found else None


def _mlflow_name(name: str) -> str:
    # In a folder a metric is a file, and `loss` cannot be both a file and a folder.
    return name.replace("/", ".")
