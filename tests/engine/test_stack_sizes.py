"""A trial's result does not depend on how many trials it was stacked with, to the last bit."""

import json
from pathlib import Path
from typing import Any

import pytest

from remask.methods import METHODS
from tests.command_line import CommandLine


def trials_of(remask: CommandLine, method: str, stack: int, file: Path) -> list[dict[str, Any]]:
    buffer = ("--buffer", "50") if METHODS[method].uses_buffer() else ()
    answer = remask(
        *("run", "--benchmark", "split-digits", "--method", method, *buffer),
        *("--limit", "15", "--epochs", "1", "--trials", "6", "--workers", "1"),
        *("--stack", str(stack), "--output", str(file), "--again"),
    )
    assert answer.code == 0, answer.text
    trials: list[dict[str, Any]] = json.loads(file.read_text())["trials"]
    assert len(trials) == 6
    return trials


@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_stacks_of_one_three_and_six_show_the_same(
    method: str, remask: CommandLine, tmp_path: Path
) -> None:
    """The confidences, means of probabilities, would tell a difference in the last bit."""
    alone, in_threes, together = (
        trials_of(remask, method, stack, tmp_path / f"{stack}.json") for stack in (1, 3, 6)
    )
    for one, three, six in zip(alone, in_threes, together, strict=True):
        for shown in ("class_il", "task_il", "confidence"):
            assert one[shown] == three[shown] == six[shown]
