"""One model for years: learn new classes visit after visit, predict, evaluate, forget."""

from remask.learner.accounts import (
    Calibration,
    Choice,
    Evaluation,
    Forgotten,
    Prediction,
    Predictions,
    Preprocessing,
    Undone,
    Visit,
)
from remask.learner.encoding import Progress
from remask.learner.errors import LearnerError, NoEncoderWarning, VisitRejectedError
from remask.learner.estimating import Estimate
from remask.learner.learner import Learner
from remask.learner.summary import ClassSummary, Summary
from remask.user_data import Skipped, TextFile

__all__ = [
    "Calibration",
    "Choice",
    "ClassSummary",
    "Estimate",
    "Evaluation",
    "Forgotten",
    "Learner",
    "LearnerError",
    "NoEncoderWarning",
    "Prediction",
    "Predictions",
    "Preprocessing",
    "Progress",
    "Skipped",
    "Summary",
    "TextFile",
    "Undone",
    "Visit",
    "VisitRejectedError",
]
