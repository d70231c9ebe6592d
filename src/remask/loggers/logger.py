"""Loggers: what one is, how one is named, and several as one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple, Self

from remask.errors import MissingPackageError, RemaskError, SettingsError
from remask.own_code import failure_of, import_own, names_own_code, own_place

Setting = str | int | float | bool | None
"""The value of a trial's setting; no number is infinite."""
_KINDS = {
    "csv": ("files", "CsvLogger", ""),
    "jsonl": ("files", "JsonLinesLogger", ""),
    "tensorboard": ("trackers", "TensorBoardLogger", "tensorboard"),
    "wandb": ("trackers", "WandbLogger", "wandb"),
    "mlflow": ("trackers", "MlflowLogger", "mlflow-skinny"),
}


class LoggerError(RemaskError):
    """A place cannot be logged to; the message has the place, the reason and a remedy."""


@dataclass(frozen=True)
class Source:
    """The trial that values come from."""

    name: str
    """Unique to the trial, and usable as a file name."""
    settings: Mapping[str, Setting] = field(default_factory=dict, hash=False)


class Reached(NamedTuple):
    """What a logger already has of a source."""

    step: int = 0
    """The step of the latest losses."""
    task_step: int = 0
    """The step of the latest accuracies after a task."""
    ended: bool = False

    def after(self, event: str, step: int) -> "Reached":
        """The same after an event at a step: `step`, `task` or `end`."""
        if event == "step":
            return self._replace(step=max(self.step, step))
        if event == "task":
            return self._replace(task_step=max(self.task_step, step))
        return self._replace(ended=True) if event == "end" else self


class Logger:
    """Receives the losses and accuracies of trials while they learn, each once.

    Steps are counted through the whole stream, and tasks from 1. Values have names; unknown ones
    are left out. It is used in one thread of the process that logs.
    """

    def on_step(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """Log losses, means over the steps since the last call: `loss`, `loss/replay`, ..."""

    def on_task(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """Log accuracies in percent after a task: `class_il/mean`, `class_il/task 1`, ..."""

    def on_end(self, source: Source, step: int, values: Mapping[str, float]) -> None:
        """Log the metrics of a trial that has ended: `class_il_A_T`, ..."""

    def on_event(
        self, event: str, source: Source, step: int, task: int | None, values: Mapping[str, float]
    ) -> None:
        """Log an event by one of the functions above; `event` is `step`, `task` or `end`."""
        if task is None:
            self.on_end(source, step, values)
        else:
            (self.on_step if event == "step" else self.on_task)(source, step, task, values)

    def reached(self, source: Source) -> Reached:
        """What it has of a source from earlier runs, which is not logged again."""
        return Reached()

    def flush(self) -> None:
        """Called after several calls, when the next one may take a while."""

    def close(self) -> None:
        """Called once at the end."""


class Log:
    """Passes every event to several loggers, to each of them once.

    A logger that fails gets no more events, and `report` is called with the reason.
    """

    def __init__(self, loggers: Mapping[str, Logger], report: Callable[[str], None]) -> None:
        """`loggers` by the names that messages use."""
        self._loggers = dict(loggers)
        self._report = report
        self._reached: dict[tuple[str, Source], Reached] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def step(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_step`."""
        self._once("step", source, step, task, values)

    def task(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_task`."""
        self._once("task", source, step, task, values)

    def end(self, source: Source, step: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_end`."""
        self._once("end", source, step, None, values)

    def flush(self) -> None:
        """See `Logger.flush`."""
        self._each(lambda _, logger: logger.flush())

    def close(self) -> None:
        """See `Logger.close`."""
        self._each(lambda _, logger: logger.close())

    def _once(
        self, event: str, source: Source, step: int, task: int | None, values: Mapping[str, float]
    ) -> None:
        def unless_logged(name: str, logger: Logger) -> None:
            if (name, source) not in self._reached:
                self._reached[name, source] = logger.reached(source)
            before = self._reached[name, source]
            if before.after(event, step) != before:
                logger.on_event(event, source, step, task, values)
                self._reached[name, source] = before.after(event, step)

        self._each(unless_logged)

    def _each(self, call: Callable[[str, Logger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            try:
                call(name, logger)
            except Exception as error:  # also of custom code: training continues without the log
                del self._loggers[name]
                reason = str(error) if isinstance(error, RemaskError) else repr(error)
                self._report(f"nothing more is logged to {name}: {reason}{own_place(error)}")


def check_place(place: str) -> None:
    """Raise ValueError unless the place is of a known kind or custom code."""
    kind, _, target = place.partition(":")
    if not (target if kind in _KINDS else names_own_code(place)):
        raise ValueError(
            f"{place!r} is not a place to log to: use csv:FILE, jsonl:FILE, tensorboard:FOLDER, "
            f"wandb:PROJECT, mlflow:FOLDER, or module:Class for your own"
        )


def open_logger(place: str) -> Logger:
    """Open the logger of a place such as `csv:losses.csv` or `my_module:MyLogger`.

    Raises LoggerError, MissingPackageError or OwnCodeError.
    """
    kind, _, target = place.partition(":")
    if kind not in _KINDS:
        return _custom(place)
    module, name, package = _KINDS[kind]
    make: Callable[[str], Logger] = getattr(import_module(f"remask.loggers.{module}"), name)
    try:
        return make(target)
    except ImportError as error:
        raise MissingPackageError(
            f"--log {place} needs a package that is not installed ({error}): pip install "
            f"{package}. csv and jsonl need nothing more."
        ) from None


def _custom(place: str) -> Logger:
    kind = import_own("logger", place)
    if not (isinstance(kind, type) and issubclass(kind, Logger)):
        raise SettingsError(f"the logger {place!r} is not a class derived from remask.Logger")
    try:
        return kind()
    except RemaskError:
        raise
    except Exception as error:
        raise failure_of(f"making the logger {place!r}", error) from error
