"""One model for years: learn new classes visit after visit, predict, evaluate, forget."""

from remask.data.readers import Skipped
from remask.data.texts import TextFile
from remask.learner.errors import LearnerError, NoEncoderWarning, VisitRejectedError
from remask.learner.estimate import Estimate
from remask.learner.evaluation import Evaluation
from remask.learner.learner import Learner
from remask.learner.predictions import Abstention, Prediction, Predictions, UnknownTest
from remask.learner.results import (
    Calibration,
    Choice,
    Forgotten,
    Preprocessing,
    Progress,
    Undone,
    Visit,
)
from remask.learner.summary import ClassSummary, Summary

__all__ = [
    "Abstention",
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
    "UnknownTest",
    "Visit",
    "VisitRejectedError",
]
