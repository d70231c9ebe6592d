"""One model for years: learn new classes visit after visit, predict, evaluate, forget."""

from typing import TYPE_CHECKING

from remask.lazy_names import lazy_names

if TYPE_CHECKING:
    from remask.data.readers import Skipped
    from remask.data.texts import TextFile
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
    from remask.learner.settings import (
        LearnerError,
        LearnerSettings,
        NoEncoderWarning,
        VisitRejectedError,
    )
    from remask.learner.summary import ClassSummary, Summary

_MODULES = {
    "estimate": "Estimate",
    "evaluation": "Evaluation",
    "learner": "Learner TextFile",
    "predictions": "Abstention Prediction Predictions UnknownTest",
    "reader": "Skipped",
    "results": "Calibration Choice Forgotten Preprocessing Progress Undone Visit",
    "settings": "LearnerError LearnerSettings NoEncoderWarning VisitRejectedError",
    "summary": "ClassSummary Summary",
}

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
    "LearnerSettings",
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

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
