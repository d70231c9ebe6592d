"""One model for years: learn new classes visit after visit, predict, evaluate, forget."""

from remask.learner.accounts import (
    Calibration,
    Choice,
    Evaluation,
    Forgotten,
    Prediction,
    Predictions,
    Preprocessing,
    Visit,
)
from remask.learner.errors import LearnerError
from remask.learner.learner import Learner
from remask.learner.training import Progress
from remask.user_data import Skipped, TextFile

__all__ = [
    "Calibration",
    "Choice",
    "Evaluation",
    "Forgotten",
    "Learner",
    "LearnerError",
    "Prediction",
    "Predictions",
    "Preprocessing",
    "Progress",
    "Skipped",
    "TextFile",
    "Visit",
]
