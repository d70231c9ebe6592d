"""`remask sweep`: grids of settings."""

import itertools
import math
import re
from pathlib import Path

import pytest

from remask.experiments import RunOptions
from remask.experiments.grids import grid_configs
from remask.store import Store
from tests.command_line import CommandLine
from tests.store.store_samples import contents, make_record


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    return tmp_path / "grid.toml"


def test_axes_are_crossed_and_zipped_ones_go_together(grid: Path) -> None:
    grid.write_text(
        'method = "derpp"\ntrials = 2\n'
        '[grid]\nmask = ["none", -1, "-inf"]\nlr = [0.1, 0.03]\n'
        "[[zip]]\nbuffer = [20, 50]\nepochs = [1, 2]\n"
        "[[zip]]\nalpha = [0.5]\nbeta = [1]\n"
    )
    found = [
        (c.mask, c.lr, c.buffer, c.epochs, c.alpha, c.seed)
        for c in grid_configs(grid, own_code=False)
    ]
    expected = [
        (mask, lr, buffer, epochs, 0.5, seed)
        for mask, lr, (buffer, epochs), seed in itertools.product(
            [None, -1.0, -math.inf], [0.1, 0.03], [(20, 1), (50, 2)], [0, 1]
        )
    ]
    assert found == expected


def test_any_field_can_be_an_axis(grid: Path) -> None:
    grid.write_text(
        '[grid]\nbenchmark = ["split-digits"]\nmethod = ["oewc"]\nseed = [3, 5]\ntrials = [1]\n'
        'net = ["mlp"]\nbatch = [5]\nlr_drops = [[], [1]]\ntasks = [2, 5]\nclass_order = [1]\n'
        "limit = [9]\ntask_free = [false]\n[grid.weights]\npenalty = [1, 10]\ngamma = [0.5]\n"
    )
    configs = grid_configs(grid, own_code=False)
    assert len(configs) == 2 * 2 * 2 * 2
    assert {config.seed for config in configs} == {3, 5}
    assert {config.weights for config in configs} == {
        (("gamma", 0.5), ("penalty", 1.0)),
        (("gamma", 0.5), ("penalty", 10.0)),
    }


def test_a_trial_of_two_points_is_run_once(grid: Path) -> None:
    grid.write_text("[grid]\nseed = [0, 1]\ntrials = [2]\n")
    assert [config.seed for config in grid_configs(grid, own_code=False)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "has no axis"),
        ("[grid]\nmsak = [-1]\n", "did you mean 'mask'"),
        ("[grid]\nmask = []\n", "use a list of values"),
        ("grid = 3\n", "not a table"),
        ("[zip]\nmask = [-1]\n", "[[zip]] with two brackets"),
        ("[[zip]]\nmask = [-1]\nlr = [0.1, 0.2]\n", "'mask': 1, 'lr': 2"),
        ("[[zip]]\n", "got none"),
        ("[grid]\nlr = [0.1]\n[[zip]]\nlr = [0.2]\n", "lr is given twice"),
        ("lr = 0.1\n[grid]\nlr = [0.1]\n", "lr is given twice"),
        ("[grid]\nmethod = ['drepp']\n", "did you mean 'derpp'"),
        ("[grid]\nmethod = ['oewc']\nweights.penalti = [1]\n", "no weight 'penalti'"),
        ("method = 'oewc'\nweights = 3\n[grid.weights]\ngamma = [1]\n", "names with values"),
        ("[grid]\nmethod = ['mine:Method']\n", "--own-code"),
        (
            "[grid]\nmethod = ['gem']\nbuffer = [20, 3]\n",
            "`buffer >= 5` for 5 tasks and 10 classes, got 3",
        ),
        ("[grid]\nseed = [" + "0," * 400 + "]\nlr = [" + "1," * 400 + "]\n", "160,000 trials"),
        ("[grid\n", "not valid TOML"),
    ],
)
def test_an_invalid_grid_is_refused_and_nothing_changes(
    remask: CommandLine, grid: Path, text: str, expected: str
) -> None:
    with Store(remask.store) as store:
        store.add(make_record())
    grid.write_text(text)
    before = contents(remask.store.parent)
    answer = remask("sweep", str(grid))
    assert answer.code in (1, 2)
    assert expected in answer.text
    assert "Traceback" not in answer.text
    assert contents(remask.store.parent) == before


def test_a_sweep_stores_every_trial_and_runs_none_twice(remask: CommandLine, grid: Path) -> None:
    grid.write_text("epochs = 1\nlimit = 5\ntrials = 2\n[grid]\nmask = ['none', -1]\n")
    answer = remask("sweep", str(grid), "--workers", "1")
    assert answer.code == 0
    assert "MSER(-1)" in answer.out
    with Store(remask.store) as store:
        assert store.count() == 4
        first = [record.created for record in store.records()]
    assert "All 4 trials are in" in remask("sweep", str(grid)).text
    with Store(remask.store) as store:
        assert [record.created for record in store.records()] == first


def test_the_example_is_a_grid_of_eighty_trials(repository: Path) -> None:
    configs = grid_configs(repository / "examples" / "sweep_masks.toml", own_code=False)
    assert len(configs) == 8 * 2 * 5
    assert {config.benchmark for config in configs} == {"split-digits"}


def test_the_python_sweep_in_the_docs_runs(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (repository / "docs" / "sweeps.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("REMASK_STORE", str(tmp_path / "results.db"))
    monkeypatch.setattr(RunOptions, "processes", 1)
    exec(code, {})
    assert "DER++" in capsys.readouterr().out
    with Store(tmp_path / "results.db") as store:
        assert store.count() == 3 * 2 * 2
