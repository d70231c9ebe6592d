"""--mask auto on the command line: what it runs, says and refuses."""

from itertools import islice
from pathlib import Path

import pytest

from remask.engine import TrialStack
from remask.engine.choosing import candidates_of
from remask.methods import METHODS
from remask.results import Store
from tests.command_line import QUICK, CommandLine

AUTO = ("--method", "er", "--mask", "auto", "--workers", "1")


def test_a_run_with_auto_is_a_row_of_its_own_and_says_what_was_chosen(remask: CommandLine) -> None:
    answer = remask("run", *QUICK, *AUTO[:3], "auto,-inf", *AUTO[4:], "--buffer", "1000")
    assert answer.code == 0, answer.text
    assert "MSER(auto)" in answer.out
    assert "MSER(-inf)" in answer.out
    assert "masks that MSER(auto), split-digits, buffer 1000 chose after each task:" in answer.text
    with Store(remask.store) as store:
        auto = [record for record in store.records() if record.config.mask == "auto"]
    assert [len(record.choices) for record in auto] == [5, 5]
    assert "already" in remask("run", *QUICK, *AUTO, "--buffer", "1000").out
    listed = remask("results", "list", "--mask", "auto")
    assert "MSER(auto)" in listed.out
    assert "-inf" not in listed.out


def test_a_grid_can_have_auto_beside_other_masks(remask: CommandLine, tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text('method = "er"\nbuffer = 20\n[grid]\nmask = ["auto", "-inf"]\n')
    answer = remask("sweep", str(grid), *QUICK, "--workers", "1")
    assert answer.code == 0, answer.text
    assert "MSER(auto)" in answer.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "sgd", "--mask", "auto"), "SGD has no memory to choose a mask with"),
        (("--method", "icarl", "--mask", "auto"), "does not support a mask"),
        (("--method", "er", "--mask", "auto", "--fade", "4"), "a mask other than 'auto'"),
        (("--method", "derpp", "--mask", "auto", "--mask-stored"), "needs a finite mask"),
        (("--method", "er", "--mask", "auto", "--task-free"), "task_free"),
        (("--method", "er", "--mask", "automatic"), "'none', 'auto' or a number"),
    ],
)
def test_auto_is_refused_in_one_line_where_it_makes_no_sense(
    arguments: tuple[str, ...], message: str, remask: CommandLine
) -> None:
    answer = remask("run", *QUICK, *arguments, "--workers", "1")
    assert answer.code != 0
    assert message in answer.text
    assert "Traceback" not in answer.text


def test_a_run_that_was_stopped_goes_on_to_the_same_result(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("run", *QUICK, *AUTO, "--buffer", "1000")
    assert remask(*command).code == 0
    with Store(remask.store) as store:
        whole = {record.config_hash: record for record in store.records()}
    run = TrialStack.run

    def stopped(stack: TrialStack) -> object:
        yield from islice(run(stack), 80)
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(TrialStack, "run", stopped)
        assert remask(*command, "--again").code != 0
    assert remask("resume", "--workers", "1").code == 0
    with Store(remask.store) as store:
        again = {record.config_hash: record for record in store.records()}
    assert again.keys() == whole.keys()
    for name, record in again.items():
        assert record.created > whole[name].created
        assert record.choices == whole[name].choices
        assert str(record.class_il) == str(whole[name].class_il)


def test_every_masked_method_with_a_memory_has_a_default_and_others_to_choose_from() -> None:
    for method in METHODS.values():
        if method.uses_buffer() and not method.unmaskable:
            few, many = candidates_of(999), candidates_of(1000)
            assert few == many[:1]
            assert len({candidate.name for candidate in many}) == len(many) > 1
