"""The loggers of remask: plain files, and experiment trackers that need an optional package.

A file is read when it is opened, so that a stopped run continues where its log ends; a last line
that was cut short is removed. Several runs may log to one file: reading and appending hold a lock.
"""

import fcntl
import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any

from remask.files import make_folder, refusal, write_all
from remask.loggers import Logger, LoggerError, TrialInfo

_EVENTS = ("begin", "step", "task", "end")


class _LinesLogger(Logger, ABC):
    """A text file to which lines are appended."""

    header: str
    """The first line of every log."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._has: dict[str, dict[str, int]] = {}
        self._waiting = ""
        make_folder(self._path.parent)
        with self._locked() as file:
            self._read_or_begin(file)

    @contextmanager
    def _locked(self) -> Iterator[FileIO]:
        """Open the file while no other run reads or appends to it; explain errors."""
        try:
            with self._path.open("a+b", buffering=0) as file:
                with suppress(OSError):  # not supported by the file system
                    fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except OSError as error:
            raise refusal("write", self._path, error) from error

    def _read_or_begin(self, file: FileIO) -> None:
        """Read a log, and remove a line that was cut short; begin a new file with its header."""
        file.seek(0)
        content, header = file.readall(), self.header.encode()
        whole = content.rfind(b"\n") + 1
        try:
            if not (content if whole else header).startswith(header if whole else content):
                raise ValueError(f"its first line is not {self.header.rstrip()}")
            for line in content[len(header) : whole].decode().splitlines():
                name, event, step = self._event(line)
                if not isinstance(name, str) or event not in _EVENTS:
                    raise ValueError(f"it has a line of the event {event!r:.60}")
                self._has.setdefault(name, {})[event] = int(step)
        except (ValueError, LookupError, TypeError) as error:
            raise LoggerError(
                f"{self._path} exists and is not a remask log ({error}). Nothing was written to "
                f"it. Name another file."
            ) from None
        file.truncate(whole)
        if not whole:
            write_all(file, header)

    @abstractmethod
    def _event(self, line: str) -> tuple[Any, Any, Any]:
        """Trial, event and step of a line, unchecked."""

    def reached(self, trial: TrialInfo) -> Mapping[str, int]:
        """See `Logger.reached`."""
        return self._has.get(trial.name, {})

    def flush(self) -> None:
        """Write the waiting lines in one piece."""
        if self._waiting:
            with self._locked() as file:
                write_all(file, self._waiting.encode())
            self._waiting = ""

    def close(self) -> None:
        """Write the rest."""
        self.flush()


class CsvLogger(_LinesLogger):
    """A line per value: trial, event (step, task, end), step, task, name, value."""

    header = "trial,event,step,task,name,value\n"

    def _event(self, line: str) -> tuple[Any, Any, Any]:
        name, event, step, *_ = line.split(",")
        return name, event, step

    def on_event(
        self, event: str, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]
    ) -> None:
        """See `Logger.on_event`."""
        # No name contains a comma or a quote, so these many lines need no csv.writer.
        where = f"{trial.name},{event},{step},{'' if event == 'end' else task}"
        self._waiting += "".join(f"{where},{name},{value:.9g}\n" for name, value in values.items())


class JsonLinesLogger(_LinesLogger):
    """An object per event. The settings of a trial are in its first one."""

    header = '{"event": "log", "version": 1}\n'

    def _event(self, line: str) -> tuple[Any, Any, Any]:
        entry = json.loads(line)
        return entry["trial"], entry["event"], entry["step"]

    def on_event(
        self, event: str, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]
    ) -> None:
        """See `Logger.on_event`."""
        if trial.name not in self._has:
            self._has[trial.name] = {}
            self._write(trial, "begin", 0, settings=dict(trial.settings))
        # JSON has no NaN and no infinity.
        known = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._write(trial, event, step, task=None if event == "end" else task, values=known)

    def _write(self, trial: TrialInfo, event: str, step: int, **more: object) -> None:
        entry = {"trial": trial.name, "event": event, "step": step, **more}
        self._waiting += json.dumps(entry, allow_nan=False) + "\n"


_LAST = {"loss": "step", "class_il/mean": "task", "task_il/mean": "task"}
"""The values that show the last step of an event, besides those of its end."""


class _Tracker(Logger, ABC):
    """A run of a tracker per trial."""

    def __init__(self) -> None:
        self._runs: dict[str, Any] = {}

    @abstractmethod
    def _begin(self, trial: TrialInfo) -> Any:
        """Begin or continue the run of a trial."""

    @abstractmethod
    def _log(self, run: Any, event: str, step: int, values: Mapping[str, float]) -> None:
        """Log values, by names that no other kind of event has."""

    def on_event(
        self, event: str, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]
    ) -> None:
        """See `Logger.on_event`."""
        if trial.name not in self._runs:
            self._runs[trial.name] = self._begin(trial)
        if event == "end":
            values = {f"end/{name}": value for name, value in values.items()}
        elif event == "step":
            values = {**values, "task": task}
        self._log(self._runs[trial.name], event, step, values)


def _reached(names: Iterable[str], last_step: Callable[[str], int]) -> dict[str, int]:
    """The last step of each event, from the names of the values that a tracker has."""
    events = {name: "end" if name.startswith("end/") else _LAST.get(name) for name in names}
    return {event: last_step(name) for name, event in events.items() if event}


class TensorBoardLogger(_Tracker):
    """A run per trial, in a folder of its name."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        import_module("tensorboard")  # torch's own message is less clear
        self._writer: Any = import_module("torch.utils.tensorboard").SummaryWriter
        self._folder = Path(folder)
        make_folder(self._folder)

    def reached(self, trial: TrialInfo) -> Mapping[str, int]:
        """See `Logger.reached`."""
        folder = self._folder / trial.name
        if not folder.exists():
            return {}
        reader: Any = import_module("tensorboard.backend.event_processing.event_accumulator")
        events = reader.EventAccumulator(str(folder), size_guidance={"scalars": 1})
        events.Reload()
        return _reached(events.Tags()["scalars"], lambda tag: int(events.Scalars(tag)[-1].step))

    def flush(self) -> None:
        """See `Logger.flush`."""
        for writer in self._runs.values():
            writer.flush()

    def close(self) -> None:
        """See `Logger.close`."""
        for writer in self._runs.values():
            writer.close()

    def _begin(self, trial: TrialInfo) -> Any:
        writer = self._writer(str(self._folder / trial.name), max_queue=1000)
        settings = "\n".join(f"    {name} = {value}" for name, value in trial.settings.items())
        writer.add_text("settings", settings)
        return writer

    def _log(self, run: Any, event: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            run.add_scalar(name.replace(" ", "_"), value, step)


class WandbLogger(_Tracker):
    """A run per trial in a project. With WANDB_MODE=offline nothing leaves the machine."""

    def __init__(self, project: str) -> None:
        super().__init__()
        self._wandb: Any = import_module("wandb")
        self._project = project

    def close(self) -> None:
        """See `Logger.close`."""
        for run in self._runs.values():
            run.finish()

    def _begin(self, trial: TrialInfo) -> Any:
        run = self._wandb.init(
            project=self._project,
            id=hashlib.sha256(trial.name.encode()).hexdigest()[:16],
            name=trial.name,
            config=dict(trial.settings),
            resume="allow",  # a trial that is resumed continues its run
            reinit="create_new",
            settings=self._wandb.Settings(silent=True, console="off"),
        )
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        return run

    def _log(self, run: Any, event: str, step: int, values: Mapping[str, float]) -> None:
        if event == "end":
            run.summary.update({name.removeprefix("end/"): v for name, v in values.items()})
            run.finish()
        else:
            run.log({**values, "step": step})


class MlflowLogger(_Tracker):
    """A run per trial, in the experiment `remask` of a folder, or of a server's address."""

    def __init__(self, target: str) -> None:
        super().__init__()
        # Later versions need this to keep runs as files in a folder.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        address = target if "://" in target else Path(target).resolve().as_uri()
        self._client: Any = import_module("mlflow").MlflowClient(tracking_uri=address)
        found = self._client.get_experiment_by_name("remask")
        self._experiment = (
            found.experiment_id if found else self._client.create_experiment("remask")
        )

    def reached(self, trial: TrialInfo) -> Mapping[str, int]:
        """See `Logger.reached`."""
        if (run := self._find(trial)) is None:
            return {}

        def last_step(name: str) -> int:
            history = self._client.get_metric_history(run, _mlflow_name(name))
            return int(max(point.step for point in history))

        metrics = self._client.get_run(run).data.metrics
        return _reached((name.replace(".", "/", 1) for name in metrics), last_step)

    def _begin(self, trial: TrialInfo) -> str:
        if found := self._find(trial):
            return found
        run = str(self._client.create_run(self._experiment, run_name=trial.name).info.run_id)
        for name, value in trial.settings.items():
            self._client.log_param(run, name, value)
        return run

    def _log(self, run: str, event: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(run, _mlflow_name(name), value, step=step)
        if event == "end":
            self._client.set_terminated(run)

    def _find(self, trial: TrialInfo) -> str | None:
        where = f"attributes.run_name = '{trial.name}'"
        found = self._client.search_runs([self._experiment], where, max_results=1)
        return str(found[0].info.run_id) if found else None


def _mlflow_name(name: str) -> str:
    # In a folder a metric is a file, and `loss` cannot be both a file and a folder.
    return name.replace("/", ".")
