"""The live display of a run."""

import io
from typing import Any

import pytest

from remask.config import TrialConfig
from remask.console import PlainConsole
from remask.experiments.display import Display
from remask.experiments.jobs import Advanced, Finished, Job, Note
from remask.record import TrialRecord
from tests.command_line import QUICK, CommandLine
from tests.store.store_samples import make_config, make_record

_FIRST = Job(tuple(make_config(mask=mask, seed=seed) for mask in (None, -1.0) for seed in (0, 1)))
_SECOND = Job(tuple(make_config(mask=-1.0, seed=seed) for seed in (2, 3)))


@pytest.fixture(params=[True, False], ids=["terminal", "file"])
def console(request: pytest.FixtureRequest) -> PlainConsole:
    return PlainConsole(file=io.StringIO(), force_terminal=request.param, width=140)


def _written(console: PlainConsole) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _progress(job: Job, done: int) -> Advanced:
    return Advanced(job.name, 2, 5, done, 100, 61.25)


def _result(config: TrialConfig, *, diverged_at: int | None = None) -> TrialRecord:
    return make_record(
        config,
        class_il=[[90.0, float("nan")], [60.0, 80.0]],
        task_il=[[90.0, float("nan")], [60.0, 80.0]],
        status="finished" if diverged_at is None else "diverged",
        diverged_at=diverged_at,
    )


def _finished(job: Job) -> Finished:
    results = [_result(config) for config in job.configs]
    return Finished(job.name, results)


def test_every_cell_in_hand_and_the_whole_run_have_a_bar(console: PlainConsole) -> None:
    with Display([_FIRST, _SECOND], console) as display:
        display.show(_progress(_FIRST, 0))
        display.show(_progress(_FIRST, 50))
        if not console.is_terminal:
            assert _written(console) == ""
            return
        display._bar.refresh()
        lines = _written(console).splitlines()[-3:]
    whole, plain, masked = lines
    # 4 of 6 trials are half done; both of ER, and two of the four of MSER.
    assert "0 of 2 cells" in whole
    assert " 33%" in whole
    assert "trial steps/s" in whole
    assert "ER, buffer 200" in plain
    assert " 50%" in plain
    assert "task 2/5 accuracy 61.2" in plain
    assert "MSER(-1), buffer 200" in masked
    assert " 25%" in masked


def test_a_cell_is_done_when_the_last_stack_with_its_trials_is(console: PlainConsole) -> None:
    with Display([_FIRST, _SECOND], console) as display:
        display.show(_finished(_FIRST))
        lines = [line for line in _written(console).splitlines() if "accuracy" in line]
        assert len(lines) == 1
        assert "ER, buffer 200: 2 trials, accuracy 70.00" in lines[0]
        assert "1 of 2 cells" in lines[0]
        display.show(_finished(_SECOND))
        assert "MSER(-1), buffer 200: 4 trials, accuracy 70.00" in _written(console)
        assert "2 of 2 cells" in _written(console)


def test_what_diverges_or_is_worth_a_note_is_said(console: PlainConsole) -> None:
    with Display([_FIRST, _SECOND], console) as display:
        result = _result(_SECOND.configs[0], diverged_at=1234)
        display.show(Finished(_SECOND.name, [result]))
        display.show(Note(_FIRST.name, "a checkpoint was damaged [sic]"))
    assert "MSER(-1) with seed 2 diverged at step 1,234" in _written(console)
    assert "note: a checkpoint was damaged [sic]" in _written(console)


def test_a_diverged_trial_is_counted_and_its_accuracy_is_not(console: PlainConsole) -> None:
    plain = Job(tuple(make_config(seed=seed) for seed in (0, 1)))
    masked = Job(tuple(make_config(mask=-1.0, seed=seed) for seed in (0, 1)))
    broken: Any = {"class_il": [[0.0, float("nan")], [0.0, 0.0]], "diverged_at": 3}
    with Display([plain, masked], console) as display:
        sound, other = map(_result, plain.configs)
        results = [sound, other.model_copy(update=broken)]
        display.show(Finished(plain.name, results))
        results = [_result(config).model_copy(update=broken) for config in masked.configs]
        display.show(Finished(masked.name, results))
    said = _written(console)
    assert "ER, buffer 200: 2 trials, 1 diverged, accuracy 70.00  " in said
    assert "MSER(-1), buffer 200: 2 trials, 2 diverged  " in said


def test_cells_with_other_settings_have_other_names(console: PlainConsole) -> None:
    jobs = [Job((make_config(lr=lr),)) for lr in (0.1, 0.2)]
    with Display(jobs, console) as display:
        for job in jobs:
            display.show(_finished(job))
    assert "ER, lr=0.1, buffer 200: 1 trial," in _written(console)
    assert "ER, lr=0.2, buffer 200: 1 trial," in _written(console)


def test_a_run_says_when_each_of_its_cells_is_done(remask: CommandLine) -> None:
    answer = remask("run", *QUICK, "--mask", "none,-1", "--workers", "1")
    assert answer.code == 0
    first, *lines = answer.err.splitlines()
    assert first == f"split-digits: 4 trials to run; results are stored in {remask.store}"
    assert len(lines) == 2
    assert lines[0].startswith("ER, buffer 20: 2 trials, accuracy ")
    assert "2 of 2 cells" in lines[1]
