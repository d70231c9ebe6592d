"""Loggers: where losses and accuracies go while trials learn."""

from remask.loggers.logger import (
    Log,
    Logger,
    LoggerError,
    Reached,
    Setting,
    Source,
    check_place,
    open_logger,
)

__all__ = [
    "Log",
    "Logger",
    "LoggerError",
    "Reached",
    "Setting",
    "Source",
    "check_place",
    "open_logger",
]
