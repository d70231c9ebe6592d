"""From what a user asks for to configs: what wins over what, and whose code may run."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

import remask
from remask.errors import SettingsError
from remask.experiments import RunOptions
from remask.experiments.configs import configs_from
from remask.experiments.grids import grid_configs


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


def test_what_is_given_wins_over_a_file_and_the_rest_is_the_file_s(file: Path) -> None:
    file.write_text("mask = ['none', -1]\nepochs = 3\ntrials = 2\nlr = 0.2\n")
    configs = configs_from({"trials": 1, "lr": 0.5}, file=file)
    assert [(c.mask, c.epochs, c.seed, c.lr) for c in configs] == [
        (None, 3, 0, 0.5),
        (-1, 3, 0, 0.5),
    ]


def test_what_is_given_wins_over_what_all_trials_of_a_grid_share(file: Path) -> None:
    file.write_text("epochs = 3\ntrials = 1\n[grid]\nmask = ['none', -1]\n")
    configs = grid_configs(file, {"epochs": "1", "validation": 0.1}, own_code=False)
    assert [(c.mask, c.epochs, c.validation) for c in configs] == [(None, 1, 0.1), (-1, 1, 0.1)]
    with pytest.raises(SettingsError, match="mask is given twice"):
        grid_configs(file, {"mask": "none"}, own_code=False)


def test_every_combination_of_what_is_several_is_asked_for() -> None:
    configs = configs_from(
        {"method": "er,derpp", "mask": "none,-inf", "buffer": "20,50", "trials": 2}
    )
    assert len(set(configs)) == 2 * 2 * 2 * 2
    several = {"benchmark": ["split-digits", "split-mnist"], "buffer": 200, "trials": 1}
    assert [c.benchmark for c in configs_from(several)] == ["split-digits", "split-mnist"]


def test_texts_as_typed_are_read_as_the_values_they_mean() -> None:
    (config,) = configs_from(
        {"method": "oewc", "class_order": "3,1,0,2,4,5,6,7,9,8", "lr_drops": "1,2", "epochs": "3",
         "weights": ["penalty=2", "gamma=0.5"], "trials": "1", "lr": "0.25"}
    )  # fmt: skip
    assert config.class_order == (3, 1, 0, 2, 4, 5, 6, 7, 9, 8)
    assert (config.lr_drops, config.epochs, config.lr) == ((1, 2), 3, 0.25)
    assert dict(config.weights) == {"penalty": 2.0, "gamma": 0.5}
    (config,) = configs_from({"class_order": "7", "trials": 1})
    assert config.class_order == 7
    (config,) = configs_from({"class_order": range(9, -1, -1), "trials": 1})
    assert config.class_order == tuple(range(9, -1, -1))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"class_order": "3,x"}, r"class_order = '3,x': use comma-separated whole numbers"),
        ({"lr_drops": "1.5"}, r"lr_drops = '1.5': use comma-separated whole numbers"),
        ({"weights": ["gamma"]}, "invalid weight 'gamma'; use NAME=VALUE"),
        ({"weights": "gamma=1"}, "use names with values"),
        ({"trials": 1.5}, "trials = 1.5: must be a whole number"),
        ({"buffer": "many"}, "^buffer = 'many': must be a whole number$"),
        ({"buffer": [20, 1.5]}, "^buffer = '1.5': must be a whole number$"),
        ({"mask": "none,off"}, "^mask = 'off': a mask is"),
        ({"weights": {"gamma": ["x"]}}, r"^weights.gamma = 'x': must be a number$"),
        ({"lr": "fast"}, "^lr = 'fast': must be a number$"),
        ({"replay_batch": 5, "method": "sgd"}, "SGD has no setting 'replay_batch'; it has"),
        ({"momentum": 0.9}, "there is no setting 'momentum'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        configs_from(given)


def test_code_that_only_a_file_names_is_not_imported_unless_that_is_wanted(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "code_in_a_file.py").write_text(
        "from pathlib import Path\nfrom remask.methods import ER\n"
        "Path(__file__).with_name('imported').touch()\n\n\nclass Mine(ER):\n    pass\n"
    )
    file.write_text("method = 'code_in_a_file:Mine'\ntrials = 1\n")
    for run in (
        lambda: configs_from({}, file=file),
        lambda: configs_from({"net": "code_in_a_file:net"}, file=file),
        lambda: grid_configs(
            {"method": "code_in_a_file:Mine", "grid": {"lr": [1]}}, own_code=False
        ),
        lambda: remask.run(config_file=file, store=tmp_path / "a.db"),
    ):
        with pytest.raises(SettingsError, match=r"names code to import, 'code_in_a_file:Mine'"):
            run()
    assert not (tmp_path / "imported").exists()
    assert not (tmp_path / "a.db").exists()
    (config,) = configs_from({}, file=file, own_code=True)
    assert config.method == "code_in_a_file:Mine"
    assert (tmp_path / "imported").exists()
    assert configs_from({"method": "code_in_a_file:Mine"}, file=file) == [config]


def test_python_takes_a_config_file_with_changes(file: Path, tmp_path: Path) -> None:
    file.write_text("method = 'sgd'\nepochs = 1\nlimit = 3\ntrials = 5\n")
    quiet: dict[str, Any] = {"store": tmp_path / "a.db", "workers": 1, "progress": False}
    results = remask.run(config_file=file, trials=2, **quiet)
    assert [(record.config.method, record.seed) for record in results] == [("sgd", 0), ("sgd", 1)]
    with pytest.raises(SettingsError, match="leave out config_file"):
        remask.run(config_file=file, configs=[results[0].config], **quiet)


@pytest.mark.parametrize(
    "weights", [["penalty=1,2", "gamma=0.5,1"], {"penalty": [1, 2.0], "gamma": (0.5, 1)}]
)
def test_every_combination_of_the_values_of_weights_is_a_trial(weights: object) -> None:
    configs = configs_from({"method": "oewc", "weights": weights, "trials": 1})
    assert [dict(config.weights) for config in configs] == [
        {"penalty": 1.0, "gamma": 0.5},
        {"penalty": 1.0, "gamma": 1.0},
        {"penalty": 2.0, "gamma": 0.5},
        {"penalty": 2.0, "gamma": 1.0},
    ]
    (single,) = configs_from({"method": "oewc", "weights": {"penalty": 2}, "trials": 1})
    assert single == configs_from({"method": "oewc", "weights": ["penalty=2"], "trials": 1})[0]


def test_a_weight_has_a_value_and_one_trial_has_one_of_each() -> None:
    for wrong, said in (
        ({"gamma": []}, "weights.gamma = []"),
        (["gamma=1,x"], "weights.gamma = 'x'"),
    ):
        with pytest.raises(SettingsError, match=re.escape(said)):
            configs_from({"method": "oewc", "weights": wrong})
    with pytest.raises(SettingsError, match="one value per weight"):
        remask.settings("split-mnist", "oewc", weights={"gamma": [0.5, 1.0]})
    many = {f"w{number}": list(range(100)) for number in range(9)}
    with pytest.raises(SettingsError, match="at most 100,000"):
        configs_from({"method": "oewc", "weights": many})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": 0}, "workers = 0: must be at least 1"),
        ({"workers": "2"}, "workers = '2': must be a whole number"),
        ({"threads": 1.5}, "threads = 1.5: must be a whole number"),
        ({"threads": 4097}, "threads = 4097: must be at most 4096"),
        ({"stack": -1}, "stack = -1: must be at least 1"),
        ({"checkpoint_seconds": 0.0}, "checkpoint_seconds = 0.0: must be at least 0.1"),
        ({"checkpoint_seconds": math.nan}, "checkpoint_seconds = nan: must be"),
        ({"device": 3}, "device = 3: "),
        ({"worker": 2}, "worker = 2: Extra inputs are not permitted"),
        ({"address": "10.0.0.1:6379"}, "address is for a cluster: also set on='ray'"),
        ({"on": "slurm"}, "on = 'slurm': must be 'ray'"),
        ({"on": "ray", "gpus": 1.5}, "gpus = 1.5: use a fraction of 1, or a whole number"),
        ({"on": "ray", "cpus": 0.0}, "cpus = 0.0: must be greater than 0"),
        ({"on": "ray", "tries": 0}, "tries = 0: must be at least 1"),
        ({"on": "ray", "address": "ray://head:10001"}, "address = 'ray://head:10001': "),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        RunOptions(**given)
    assert str(refused.value).startswith(message)
