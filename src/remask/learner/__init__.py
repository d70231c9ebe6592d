"""One model for years: learn new classes visit after visit, predict, evaluate, forget."""

from remask.learner.accounts import (
    Calibration,
    Choice,
    Evaluation,
    Forgotten,
    Prediction,
    Predictions,
    Visit,
)
from remask.learner.errors import LearnerError
from remask.learner.learner import Learner, Preprocessing
from remask.learner.training import Progress

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
    "Visit",
]
