"""Trials as rows of one flat table, for CSV and Parquet."""

import math
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from remask.config import TrialConfig
from remask.results.record import TrialRecord
from remask.results.summary import SCORES, scores


def column_types() -> dict[str, type]:
    """List the columns in order, and what they hold beside None: str, int, float or bool."""
    config = {
        name: _plain_type(field.annotation) for name, field in TrialConfig.model_fields.items()
    }
    return {
        "config_hash": str,
        "name": str,
        **config,
        "status": str,
        "diverged_at": int,
        "error": str,
        **dict.fromkeys(SCORES, float),
        "started": str,
        "seconds": float,
        "created": str,
        "commit": str,
    }


def flat_row(record: TrialRecord) -> dict[str, Any]:
    """Write a trial's values for the columns; None where there is none."""
    written = record.model_dump(mode="json", include={"started", "created"})
    types = column_types()
    config = {
        name: value if value is None or isinstance(value, types[name]) else str(value)
        for name, value in record.config
    }
    config["weights"] = ", ".join(f"{name}={value}" for name, value in record.config.weights)
    return {
        "config_hash": record.config_hash,
        "name": record.system,
        **config,
        "status": record.status,
        "diverged_at": record.diverged_at,
        "error": record.error,
        **{name: None if math.isnan(value) else value for name, value in scores(record).items()},
        **written,
        "seconds": record.seconds,
        "commit": record.commit,
    }


def _plain_type(annotation: Any) -> type:
    """Find the type of a config's field in a table; what has no plain one is written as text."""
    union = get_origin(annotation) in (Union, UnionType)
    options = [o for o in (get_args(annotation) if union else (annotation,)) if o is not NoneType]
    return options[0] if len(options) == 1 and options[0] in (int, float, bool) else str
