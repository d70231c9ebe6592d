"""Loggers: where losses and accuracies go while trials learn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Self

from remask.errors import MissingPackageError, RemaskError, SettingsError
from remask.own_code import failure_of, import_own, names_own_code, own_place

Setting = str | int | float | bool | None
"""The value of a trial's setting; no number is infinite."""
_KINDS = {
    "csv": ("CsvLogger", ""),
    "jsonl": ("JsonLinesLogger", ""),
    "tensorboard": ("TensorBoardLogger", "tensorboard"),
    "wandb": ("WandbLogger", "wandb"),
    "mlflow": ("MlflowLogger", "mlflow-skinny"),
}


class LoggerError(RemaskError):
    """A place cannot be logged to; the message has the place, the reason and a remedy."""


@dataclass(frozen=True)
class TrialInfo:
    """The trial that values come from."""

    name: str
    """Unique to the trial, and usable as a file name."""
    settings: Mapping[str, Setting] = field(default_factory=dict, hash=False)


class Logger:
    """Receives the losses and accuracies of trials while they learn, each once.

    Steps are counted through the whole stream, and tasks from 1. Values have names; unknown ones
    are left out. It is used in one thread of the process that logs.
    """

    def on_step(self, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]) -> None:
        """Log losses, means over the steps since the last call: `loss`, `loss/replay`, ..."""

    def on_task(self, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]) -> None:
        """Log accuracies in percent after a task: `class_il/mean`, `class_il/task 1`, ..."""

    def on_end(self, trial: TrialInfo, step: int, values: Mapping[str, float]) -> None:
        """Log the metrics of a trial that has ended: `class_il_A_T`, ..."""

    def on_event(
        self, event: str, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]
    ) -> None:
        """Log an event by one of the functions above; `event` is `step`, `task` or `end`."""
        if event == "end":
            self.on_end(trial, step, values)
        else:
            (self.on_step if event == "step" else self.on_task)(trial, step, task, values)

    def reached(self, trial: TrialInfo) -> Mapping[str, int]:
        """The last step of each event in earlier runs of a trial, which are not logged again."""
        return {}

    def flush(self) -> None:
        """Called after several calls, when the next one may take a while."""

    def close(self) -> None:
        """Called once at the end."""


class Log:
    """Passes every event to several loggers, to each of them once.

    A logger that fails gets no more events, and `report` is called with the reason.
    """

    def __init__(self, places: Sequence[str | Logger], report: Callable[[str], None]) -> None:
        """Open the loggers of `places`; see `open_logger`."""
        self._report = report
        self._reached: dict[tuple[str, TrialInfo], dict[str, int]] = {}
        self._loggers: dict[str, Logger] = {}
        for number, place in enumerate(places, start=1):
            name = place if isinstance(place, str) else f"{type(place).__name__} ({number})"
            self._loggers[name] = open_logger(place) if isinstance(place, str) else place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._each(lambda _, logger: logger.close())

    def on_event(
        self, event: str, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]
    ) -> None:
        """See `Logger.on_event`."""

        def log_once(name: str, logger: Logger) -> None:
            if (name, trial) not in self._reached:
                self._reached[name, trial] = {**logger.reached(trial)}
            reached = self._reached[name, trial]
            if step > reached.get(event, -1):
                reached[event] = step
                logger.on_event(event, trial, step, task, values)

        self._each(log_once)

    def flush(self) -> None:
        """See `Logger.flush`."""
        self._each(lambda _, logger: logger.flush())

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
    if kind in _KINDS:
        name, package = _KINDS[kind]
        make: Callable[[str], Logger] = getattr(import_module("remask.loggers.kinds"), name)
        try:
            return make(target)
        except ImportError as error:
            raise MissingPackageError(
                f"--log {place} needs a package that is not installed ({error}): pip install "
                f"{package}. csv and jsonl need nothing more."
            ) from None
    own = import_own("logger", place)
    if not (isinstance(own, type) and issubclass(own, Logger)):
        raise SettingsError(f"the logger {place!r} is not a class derived from remask.Logger")
    try:
        return own()
    except RemaskError:
        raise
    except Exception as error:
        raise failure_of(f"making the logger {place!r}", error) from error
