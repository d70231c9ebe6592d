"""Loggers: where losses and accuracies go while trials learn."""

from remask.loggers.log import Log
from remask.loggers.logger import Logger, Reached, Setting, Source
from remask.loggers.places import KINDS, LoggerError, check_place, open_logger

__all__ = [
    "KINDS",
    "Log",
    "Logger",
    "LoggerError",
    "Reached",
    "Setting",
    "Source",
    "check_place",
    "open_logger",
]
