"""Records, and the hash that identifies a trial."""

import hashlib
import math
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from remask.config import TrialConfig
from remask.experiments.results import rerun_command
from remask.record import Losses, MaskChoice
from remask.reports.tables import masks_chosen
from remask.store import Store, TrialRecord, export, read_export, scores, summarise
from tests.command_line import CommandLine
from tests.store.store_samples import (
    NAN,
    diverged,
    failed,
    held_out_record,
    make_config,
    make_record,
    table,
)

ANSWERS: dict[str, Any] = {
    "confusion": [[3, 1, 0, 0], [0, 4, 0, 0], [0, 0, 2, 2], [0, 0, 0, 4]],
    "counts": [4, 12],
    "confidence": [1.0, 10.8],
    "right": [1, 12],
}
CURVE: dict[str, Any] = {
    "steps": [10, 100, 105, 200],
    "learning": [0, 0, 1, 1],
    "class_il": [[40.0, NAN], [90.0, NAN], [60.0, 5.0], [80.0, 88.0]],
    "task_il": [[70.0, NAN], [95.0, NAN], [94.0, 50.0], [95.0, 90.0]],
}
LOSSES: dict[str, Any] = {
    "names": ["loss", "replay"],
    "steps": [10, 20],
    "learning": [0, 0],
    "values": [[2.5, NAN], [1.25, 0.5]],
}


def chose(name: str) -> MaskChoice:
    return MaskChoice(
        chosen=name,
        reason="1.2 ±0.5 points ahead",
        scores={"0 fading 12": 80.0, "none": 81.2},
        errors={"0 fading 12": 0.0, "none": 0.5},
        old_samples=40,
        samples=52,
    )


def holds_out(**changes: Any) -> TrialRecord:
    return make_record(make_config(validation=0.1), **changes)


def auto_record(*chosen: str, seed: int = 1) -> TrialRecord:
    config = make_config(mask="auto", buffer=1000, seed=seed)
    return make_record(config=config, choices=tuple(map(chose, chosen)))


def answered(**changes: Any) -> TrialRecord:
    return make_record(answers={**ANSWERS, **changes}, flops=1e12, memory_bytes=2240)


def measured(config: TrialConfig | None = None, **changes: Any) -> TrialRecord:
    return make_record(config or make_config(evaluate_every=10), curve={**CURVE, **changes})


def with_losses(**changes: Any) -> TrialRecord:
    return make_record(losses={**LOSSES, **changes})


# The identity of a trial


def test_a_config_has_the_hash_of_its_canonical_form() -> None:
    config = make_config(mask="-inf", seed=7, alpha=0.5)
    canonical = (
        '{"alpha":0.5,"batch":10,"benchmark":"split-digits","buffer":200,"epochs":1,"lr":0.1,'
        '"mask":"-inf","method":"er","replay_batch":10,"seed":7}'
    )
    assert config.canonical == canonical
    assert config.hash == hashlib.sha256(canonical.encode()).hexdigest()
    assert TrialConfig.model_validate_json(canonical) == config


def test_defaults_never_change_because_hashes_leave_them_out() -> None:
    released = {
        **{"mask": None, "buffer": 0, "seed": 0, "net": "mlp", "replay_batch": 0},
        **{"alpha": 0.0, "beta": 0.0, "validation": 0.0},
    }
    fields = TrialConfig.model_fields
    assert {name: fields[name].get_default() for name in released} == released


def test_equal_configs_and_no_others_have_equal_hashes() -> None:
    assert make_config(mask=-0.0).hash == make_config(mask=0.0).hash
    for change in ({"seed": 2}, {"mask": "-inf"}, {"mask": 0}, {"lr": 0.1 + 1e-16}):
        assert make_config(**change).hash != make_config().hash


# Contents


@pytest.mark.parametrize(
    "record",
    [
        make_record(),
        diverged(),
        failed(),
        TrialRecord.failure(make_config(), "Traceback: \udcff", versions={"torch": "2.6"}),
        held_out_record(),
        make_record(make_config(mask=-0.0), seconds=-0.0),
        answered(),
        measured(),
        with_losses(),
        auto_record("none", "none"),
    ],
)
def test_a_record_comes_back_from_store_and_export(tmp_path: Path, record: TrialRecord) -> None:
    with Store(tmp_path / "results.db") as store:
        store.add(record)
    with Store(tmp_path / "results.db") as store:
        assert store.get(record.config_hash) == record
        assert list(store.checked()) == [record]
    export([record], "json", tmp_path / "trials.json")
    assert read_export(tmp_path / "trials.json") == [record]


_BROKEN: list[tuple[Callable[..., TrialRecord], dict[str, Any]]] = [
    (make_record, {"status": "diverged"}),
    (make_record, {"diverged_at": 3}),
    (make_record, {"status": "failed"}),
    (make_record, {"error": "odd"}),
    (make_record, {"class_il": [[1.0]]}),
    (make_record, {"class_il": [], "task_il": []}),
    (make_record, {"class_il": [[float("inf")]], "task_il": [[1.0]]}),
    (make_record, {"class_il": [(None,)] * 10_001, "task_il": [[]]}),
    (make_record, {"seconds": NAN}),
    (make_record, {"tasks": []}),
    (make_record, {"class_names": []}),
    (make_record, {"tasks": [[0, 1, 2, 3]]}),
    (make_record, {"tasks": [[0, 1], [2, 4]]}),
    (make_record, {"class_names": ["a", "b", "c"]}),
    (make_record, {"class_names": ["a", "b", "c", "c"]}),
    (make_record, {"validation_class_il": [[1.0, NAN], [1.0, 1.0]]}),  # nothing was held out
    (holds_out, {"validation_class_il": [], "validation_task_il": []}),
    (holds_out, {"validation_task_il": []}),
    (holds_out, {"validation_class_il": [[1.0]], "validation_task_il": [[1.0]]}),
    (holds_out, {"validation_class_il": [[1.0, NAN], [1.0]]}),
    (holds_out, {"validation_class_il": [[1.0, math.inf], [1.0, 1.0]]}),
    (make_record, {"started": datetime(2026, 1, 1)}),
    (make_record, {"choices": (chose("none"),)}),
    (make_record, {"curve": CURVE}),  # of a config that does not ask for it
    (make_record, {"config": make_config(evaluate_every=10), "curve": None}),
    (answered, {"confusion": [[1, 2], [3]]}),
    (answered, {"confusion": [[1, 2], [3, 4]]}),  # of four classes
    (answered, {"confusion": [[-1, 0, 0, 0], *ANSWERS["confusion"][1:]]}),
    (answered, {"counts": [1]}),
    (answered, {"confidence": [-1.0, 0.0]}),
    (measured, {"steps": [10, 100, 105]}),
    (measured, {"steps": [10, 100, 100, 200]}),
    (measured, {"learning": [0, 1, 0, 1]}),
    (measured, {"learning": [0, 0, 1, 2]}),
    (measured, {"class_il": [[40.0], [90.0], [60.0], [80.0]]}),
    (measured, {"class_il": [[140.0, NAN], [90.0, NAN], [60.0, 5.0], [80.0, 88.0]]}),
    (measured, {"more": 1}),
    (with_losses, {"steps": [20, 10]}),
    (with_losses, {"learning": [0]}),
    (with_losses, {"values": [[1.0], [1.0]]}),
]


@pytest.mark.parametrize(("make", "damage"), _BROKEN)
def test_a_record_that_contradicts_itself_is_refused(
    make: Callable[..., TrialRecord], damage: dict[str, Any]
) -> None:
    make()
    with pytest.raises(ValidationError):
        make(**damage)


def test_values_are_normalised() -> None:
    one, other = (make_record(class_il=[[NAN]], task_il=[[1.0]]) for _ in range(2))
    assert one == other  # though NaN is not equal to NaN
    east = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert make_record(started=east).started.isoformat() == "2025-12-31T23:00:00+00:00"
    rounded = [1.0000005, 0.2, 0.7, 0.9]
    assert make_record(confidence=rounded).confidence == tuple(rounded)
    assert math.isnan(Losses(**{**LOSSES, "values": [[math.inf, 1], [1, 1]]}).values[0][0])


def test_messages_of_failed_trials_are_kept_without_control_characters() -> None:
    message = "first\nsecond\x1b[2J\x1b]0;owned\x07\udcff" + "x" * 200_000
    record = TrialRecord.failure(make_config(), message)
    assert record.error is not None
    assert record.error.startswith("first\nsecond?[2J?]0;owned??xxx")
    assert len(record.error) == 100_000
    assert make_record(commit="a\x1bb").commit == "a?b"
    assert make_record(versions={"torch": "\x07"}).versions == {"torch": "?"}


# Measurements


def test_curves_answers_and_costs_are_in_scores_and_tables() -> None:
    found = scores(measured())
    assert found["class_il_min_ACC"] == 60.0
    assert found["class_il_WC_ACC"] == (88.0 + 60.0) / 2
    assert found["class_il_switch_drop"] == 30.0
    assert found["task_il_switch_drop"] == 1.0
    assert scores(answered())["class_il_ECE"] == pytest.approx(100 * 1.2 / 16)
    row, curve, without = table([answered(), measured(), make_record(make_config(seed=2))])
    assert float(row["class_il_ECE"]) == pytest.approx(7.5)
    assert (float(row["flops"]), row["memory_bytes"]) == (1e12, "2240")
    assert (float(curve["class_il_min_ACC"]), curve["evaluate_every"]) == (60.0, "10")
    for name in ("class_il_ECE", "flops", "memory_bytes", "class_il_min_ACC"):
        assert without[name] == ""


def test_a_line_says_how_many_trials_chose_which_mask_after_each_task() -> None:
    fading = "0 fading 12"
    records = [
        auto_record(fading, "none", seed=0),
        auto_record(fading, fading, seed=1),
        auto_record(fading, fading, seed=2),
        make_record(),
    ]
    assert records[0].system == "MSER(auto)"
    (line,) = masks_chosen(summarise(records))
    assert line.startswith("masks that MSER(auto), ")
    assert line.endswith(f"{fading} (3) | {fading} (2), none (1)")


def test_a_run_stores_answers_costs_and_a_curve_that_changes_no_result(remask: CommandLine) -> None:
    quick = ("--benchmark", "split-digits", "--limit", "15", "--workers", "1", "--trials", "1")
    remask.succeed("run", *quick, "--buffer", "20")
    remask.succeed("run", *quick, "--buffer", "20", "--evaluate-every", "2")
    plain, record = sorted(remask.records(), key=lambda record: record.config.evaluate_every)
    assert (plain.class_il, plain.confidence) == (record.class_il, record.confidence)
    assert plain.curve is None
    assert not math.isnan(scores(record)["class_il_min_ACC"])
    assert "--evaluate-every 2" in rerun_command(record.config, [0])
    assert record.answers is not None
    assert [sum(row) for row in record.answers.confusion] == [15] * 10
    right = sum(row[label] for label, row in enumerate(record.answers.confusion))
    assert sum(record.answers.right) == right
    assert record.memory_bytes == 20 * (64 + 8)
    # 150 samples, and as many replayed, per epoch; an MLP of 64, 100, 100 and 10 units has 2 FLOPs
    # per weight forward, and twice as many back.
    per_sample = 3 * 2 * (64 * 100 + 100 * 100 + 100 * 10)
    assert plain.flops == plain.config.epochs * 300 * per_sample
