"""Records, and the hash that identifies a trial."""

import hashlib
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError, create_model

from remask.config import TrialConfig
from tests.results.store_samples import NAN, make_config, make_record

HOLDS_OUT = make_config(validation=0.1)

# The identity of a trial


def test_a_config_has_the_hash_it_has_had_since_the_first_release() -> None:
    config = make_config(mask="-inf", seed=7, alpha=0.5)
    canonical = (
        '{"alpha":0.5,"batch":10,"benchmark":"split-digits","buffer":200,"epochs":1,"lr":0.1,'
        '"mask":"-inf","method":"er","replay_batch":10,"seed":7}'
    )
    assert config.hash == hashlib.sha256(canonical.encode()).hexdigest()
    assert config.hash == ("9adea2b44a1bcdc33675be10b5d232b129d00b1bceceb523321f4ee9d850a011")


def test_defaults_never_change_because_hashes_leave_them_out() -> None:
    released = {
        "mask": None,
        "buffer": 0,
        "seed": 0,
        "net": "mlp",
        "replay_batch": 0,
        "alpha": 0.0,
        "beta": 0.0,
        "validation": 0.0,
    }
    fields = TrialConfig.model_fields
    assert {name: fields[name].get_default() for name in released} == released


def test_a_hash_does_not_depend_on_the_order_of_fields() -> None:
    fields = {name: (field.annotation, field) for name, field in TrialConfig.model_fields.items()}
    reordered: Any = create_model("Reordered", **dict(reversed(fields.items())))  # type: ignore[call-overload]
    config = make_config(mask=-1)
    backwards: Any = reordered(**config.model_dump())
    assert list(backwards.model_dump()) == list(reversed(fields))
    assert TrialConfig.canonical.fget(backwards) == config.canonical  # type: ignore[attr-defined]


def test_a_field_added_later_leaves_the_hashes_of_old_configs_alone() -> None:
    class Later(TrialConfig):
        momentum: float = 0.0

    settings = make_config().model_dump()
    assert Later(**settings).hash == make_config().hash
    assert Later(**settings, momentum=0.9).hash != make_config().hash


@pytest.mark.parametrize(
    "change",
    [{"seed": 2}, {"mask": "-inf"}, {"mask": 0}, {"lr": 0.1 + 1e-16}, {"method": "der"}],
)
def test_every_setting_and_the_seed_make_another_trial(change: dict[str, Any]) -> None:
    assert make_config(**change).hash != make_config().hash


def test_equal_configs_have_equal_hashes_even_with_a_negative_zero() -> None:
    assert make_config(mask=-0.0) == make_config(mask=0.0)
    assert make_config(mask=-0.0).hash == make_config(mask=0.0).hash


# Records


@pytest.mark.parametrize(
    "parts",
    [
        {"status": "diverged"},
        {"diverged_at": 3},
        {"status": "failed"},
        {"error": "odd"},
        {"class_il": [[1.0]]},
        {"class_il": [[1.0], [2.0]], "task_il": [[1.0], [2.0]]},
        {"class_il": [], "task_il": []},
        {"class_il": [[float("inf")]], "task_il": [[1.0]]},
        {"seconds": NAN},
        {"tasks": None},
        {"class_names": None},
        {"tasks": [[0, 1, 2, 3]]},
        {"tasks": [[0, 1], []]},
        {"tasks": [[0, 1], [2, 4]]},
        {"tasks": [[0, 1], [2]], "class_names": ["a", "b", "c"]},
        {"class_names": ["a", "b", "c"]},
        {"class_names": ["a", "b", "c", "c"]},
        {"class_names": ["a", "b", "c", ""]},
        {"validation_class_il": [[1.0, NAN], [1.0, 1.0]]},  # of a config that holds nothing out
        {"config": HOLDS_OUT, "validation_class_il": [], "validation_task_il": []},
        {"config": HOLDS_OUT, "validation_task_il": []},
        {"config": HOLDS_OUT, "validation_class_il": [[1.0]], "validation_task_il": [[1.0]]},
        {"config": HOLDS_OUT, "validation_class_il": [[1.0, NAN], [1.0]]},
        {"config": HOLDS_OUT, "validation_class_il": [[1.0, float("inf")], [1.0, 1.0]]},
        {"started": datetime(2026, 1, 1)},
    ],
)
def test_a_record_that_contradicts_itself_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make_record(**parts)


def test_records_with_equal_contents_are_equal_though_nan_is_not() -> None:
    one, other = (
        make_record(class_il=[[float("nan")]], task_il=[[1.0]], confidence=[float("nan")])
        for _ in range(2)
    )
    assert one == other


def test_moments_are_kept_in_utc() -> None:
    east = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    record = make_record(started=east)
    assert record.started.isoformat() == "2025-12-31T23:00:00+00:00"
