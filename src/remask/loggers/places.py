"""Where to log, as people write it: `csv:losses.csv`, `tensorboard:runs`, `my_module:MyLogger`."""

from collections.abc import Callable
from importlib import import_module

from remask.errors import MissingPackageError, RemaskError, SettingsError
from remask.loggers.logger import Logger
from remask.own_code import failure_of, import_own, names_own_code

_MODULES = {
    "csv": ("files", "CsvLogger", ""),
    "jsonl": ("files", "JsonLinesLogger", ""),
    "tensorboard": ("trackers", "TensorBoardLogger", "tensorboard"),
    "wandb": ("trackers", "WandbLogger", "wandb"),
    "mlflow": ("trackers", "MlflowLogger", "mlflow-skinny"),
}
KINDS = tuple(_MODULES)
"""What stands before the colon."""


class LoggerError(RemaskError):
    """Something cannot be logged to; the message says what, why, and what to do."""


def check_place(place: str) -> None:
    """Refuse a place that is neither a known kind nor custom code; raises ValueError."""
    kind, _, target = place.partition(":")
    if kind in _MODULES and target:
        return
    if kind not in _MODULES and names_own_code(place):
        return
    raise ValueError(
        f"{place!r} is not a place to log to: say csv:FILE, jsonl:FILE, tensorboard:FOLDER, "
        f"wandb:PROJECT, mlflow:FOLDER, or module:Class for your own"
    )


def open_logger(place: str) -> Logger:
    """The logger for a place. Raises LoggerError, MissingPackageError or OwnCodeError."""
    kind, _, target = place.partition(":")
    if kind not in _MODULES:
        return _own(place)
    module, name, package = _MODULES[kind]
    make: Callable[[str], Logger] = getattr(import_module(f"remask.loggers.{module}"), name)
    try:
        return make(target)
    except ImportError as error:
        raise MissingPackageError(
            f"--log {place} needs a package that is not installed ({error}): pip install "
            f"{package}. csv and jsonl need nothing more."
        ) from None


def _own(place: str) -> Logger:
    kind = import_own("logger", place)
    if not (isinstance(kind, type) and issubclass(kind, Logger)):
        raise SettingsError(f"the logger {place!r} is not a class derived from remask.Logger")
    try:
        return kind()
    except RemaskError:
        raise
    except Exception as error:
        raise failure_of(f"making the logger {place!r}", error) from error
