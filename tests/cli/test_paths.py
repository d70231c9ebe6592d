"""Paths are taken as text, as Path, and as anything that says what path it is."""

import importlib
import inspect
import os
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import remask
from remask import Learner, Store, TrialStack, load_benchmark, load_net
from remask.benchmarks import DataError, arrays, image_folder
from remask.datasets import DATASETS, fetch, load
from remask.engine import read_saved_net, save_net
from remask.experiments import (
    Written,
    examine,
    learner_now,
    learnt_visits,
    watch,
    write_learner_history,
)
from remask.experiments.calls import AnyStore
from remask.memory import MappedRows
from remask.planning import SettingsError, configs_from, grid_configs, read_config, trial_configs
from remask.reports.figures import write_figures
from remask.reports.history import is_page, write_history
from remask.results import export, merge, read_export, store_path, summarise
from remask.runs import (
    Job,
    RunOptions,
    StopRequest,
    net_path,
    run_job,
    runs_folder,
    unfinished_runs,
    without_net,
)
from remask.starting_points import write_starting_point
from remask.user_data import TextFile, read
from tests.results.store_samples import make_config, make_record

INPUTS = np.arange(40, dtype=np.uint8).reshape(10, 1, 2, 2)
LABELS = np.arange(10) % 2


class Somewhere:
    """Not a Path, but something that knows its path, as a temporary file does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __fspath__(self) -> str:
        return str(self._path)


KINDS: dict[str, Callable[[Path], Any]] = {"text": str, "Path": Path, "PathLike": Somewhere}


def use_store(given: Callable[[Path], Any], folder: Path) -> None:
    with Store(given(folder / "results.db")) as store:
        store.add(make_record(make_config()))
    assert (folder / "results.db").is_file()


def use_merge(given: Callable[[Path], Any], folder: Path) -> None:
    with Store(folder / "other.db") as store:
        store.add(make_record(make_config()))
    with Store(folder / "results.db") as store:
        assert merge(store, given(folder / "other.db")).new == 1
    (found,) = [each for each in examine(given(folder / "results.db")) if each.subject == "store"]
    assert found.text == f"1 trials in {folder / 'results.db'}"


def use_texts(given: Callable[[Path], Any], folder: Path) -> None:
    (folder / "texts.csv").write_text("body,kind\na text,ham\nanother,spam\n")
    file = TextFile(given(folder / "texts.csv"), "body", "kind")
    assert read(file, labelled=True).names == ["ham", "spam"]


def use_starting_point(given: Callable[[Path], Any], folder: Path) -> None:
    written = write_starting_point("net", "my_first_net", given(folder))
    assert written.file == folder / "my_first_net.py"


def use_export(given: Callable[[Path], Any], folder: Path) -> None:
    export([make_record(make_config())], "json", given(folder / "trials.json"))
    assert len(read_export(given(folder / "trials.json"))) == 1


def use_figures(given: Callable[[Path], Any], folder: Path) -> None:
    pytest.importorskip("matplotlib")
    cells = summarise([make_record(make_config(seed=seed)) for seed in range(2)])
    written = write_figures(cells, given(folder / "figures"))
    assert written
    assert all(path.parent == folder / "figures" and path.is_file() for path in written)


def use_learners(given: Callable[[Path], Any], folder: Path) -> None:
    learner = Learner.create(given(folder / "learner"), memory=20, epochs=1, mask=-1.0)
    learner.learn(INPUTS, LABELS.tolist(), name="first")
    learner.export(given(folder / "net.safetensors"), to="safetensors")
    visits = learnt_visits(given(folder / "learner"))
    assert [visit.name for visit in visits] == ["first"]
    now = learner_now(given(folder / "learner"))
    assert is_page(given(folder / "one.html"))
    write_learner_history(given(folder / "learner"), given(folder / "one.html"), now)
    write_history("learner", visits, given(folder / "two.html"))
    for name in ("learner", "net.safetensors", "net.safetensors.json", "one.html", "two.html"):
        assert (folder / name).exists()


def use_rows(given: Callable[[Path], Any], folder: Path) -> None:
    np.save(folder / "rows.npy", INPUTS)
    assert len(MappedRows(given(folder / "rows.npy"))) == len(INPUTS)


def use_runs(given: Callable[[Path], Any], folder: Path) -> None:
    assert runs_folder(given(folder / "results.db")) == folder / "results.db.runs"
    assert unfinished_runs(given(folder / "results.db")) == []
    (config,) = trial_configs(
        benchmark="split-digits", method="sgd", seeds=[0], overrides={"limit": 3, "epochs": 1}
    )
    for _ in run_job(Job((config,)), given(folder / "job"), RunOptions(), StopRequest()):
        pass
    assert list((folder / "job").glob("checkpoint-*"))


def use_arrays(given: Callable[[Path], Any], folder: Path) -> None:
    np.savez(folder / "both.npz", inputs=INPUTS, labels=LABELS)
    np.save(folder / "x.npy", INPUTS)
    np.save(folder / "y.npy", LABELS)
    pair = (given(folder / "x.npy"), given(folder / "y.npy"))
    assert arrays(given(folder / "both.npz"), tasks=2).num_classes == 2
    assert len(arrays(pair, test=pair, tasks=2).test_labels) == 10


def use_images(given: Callable[[Path], Any], folder: Path) -> None:
    image_module = pytest.importorskip("PIL.Image")
    for name in ("train/a", "train/b", "test/a", "test/b"):
        (folder / name).mkdir(parents=True)
        image_module.new("L", (2, 2)).save(folder / name / "0.png")
    benchmark = image_folder(given(folder / "train"), test=given(folder / "test"), tasks=2)
    assert len(benchmark.test_labels) == 2


def use_data(given: Callable[[Path], Any], folder: Path) -> None:
    # Nothing is there to be loaded: that it says which folder lacks it shows that it looked there.
    nowhere = folder / "nowhere"
    for call in (
        lambda: load_benchmark("split-mnist", data=given(nowhere)),
        lambda: fetch(DATASETS["mnist"], data=given(nowhere)),
        lambda: load(DATASETS["mnist"], given(nowhere)),
    ):
        with pytest.raises(DataError, match=f"{nowhere} does not exist"):
            call()


def use_nets(given: Callable[[Path], Any], folder: Path) -> None:
    (config,) = trial_configs(
        benchmark="split-digits", method="sgd", seeds=[0], overrides={"limit": 3}
    )
    stack = TrialStack([config], load_benchmark("split-digits", limit=3))
    path = net_path(given(folder), config)
    assert without_net(given(folder), [config]) == [config]
    save_net(stack, 0, given(path))
    assert without_net(given(folder), [config]) == []
    assert read_saved_net(given(path)).config == config
    assert load_net(given(path))(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def use_calls(given: Callable[[Path], Any], folder: Path) -> None:
    (folder / "grid.toml").write_text(
        'benchmark = "split-digits"\nlimit = 3\nepochs = 1\n[grid]\nmethod = ["sgd"]\n'
    )
    grid, store = given(folder / "grid.toml"), given(folder / "results.db")
    how: dict[str, Any] = {"workers": 1, "progress": False}
    assert read_config(grid)["limit"] == 3
    (folder / "run.toml").write_text("limit = 3\ntrials = 1\n")
    assert [config.limit for config in configs_from({}, file=given(folder / "run.toml"))] == [3]
    assert {config.limit for config in grid_configs(grid, own_code=False)} == {3}
    assert store_path(store) == folder / "results.db"
    ran = remask.run("split-digits", "sgd", limit=3, epochs=1, trials=2, store=store, **how)
    assert len(ran) == 2
    assert len(remask.sweep(grid, store=store, **how)) == 10
    with pytest.raises(SettingsError, match="no unfinished run"):
        remask.resume(store=store)
    page = given(folder / "page.html")
    assert remask.report(page, store=store).page == folder / "page.html"
    assert inspect.signature(remask.reproduce).parameters["store"].annotation == AnyStore

    def leave(written: Written) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(store, page, {}, on_write=leave)


def use_cluster(given: Callable[[Path], Any], folder: Path) -> None:
    # Ray() hands its paths to RunOptions, which needs no Ray.
    options = RunOptions(on="ray", checkpoints=given(folder / "saved"), logs=given(folder / "logs"))
    assert (options.checkpoints, options.logs) == (str(folder / "saved"), folder / "logs")


TRIED: dict[str, Callable[[Callable[[Path], Any], Path], None]] = {
    "MappedRows": use_rows,
    "Ray": use_cluster,
    "Store": use_store,
    "arrays": use_arrays,
    "examine": use_merge,
    "export": use_export,
    "fetch": use_data,
    "configs_from": use_calls,
    "grid_configs": use_calls,
    "image_folder": use_images,
    "is_page": use_learners,
    "learner_now": use_learners,
    "learnt_visits": use_learners,
    "load": use_data,
    "load_benchmark": use_data,
    "load_net": use_nets,
    "merge": use_merge,
    "net_path": use_nets,
    "read_config": use_calls,
    "read_export": use_export,
    "read_saved_net": use_nets,
    "read": use_texts,
    "TextFile": use_texts,
    "report": use_calls,
    "reproduce": use_calls,
    "resume": use_calls,
    "run": use_calls,
    "run_job": use_runs,
    "runs_folder": use_runs,
    "save_net": use_nets,
    "store_path": use_calls,
    "sweep": use_calls,
    "unfinished_runs": use_runs,
    "watch": use_calls,
    "without_net": use_nets,
    "write_figures": use_figures,
    "write_history": use_learners,
    "write_learner_history": use_learners,
    "write_report": use_calls,
    "write_starting_point": use_starting_point,
}
# Records that remask makes and hands out; nobody has to make one.
RECORDS = {
    *("BenchmarkInfo", "Dataset", "FileStatus", "RunOptions", "Run", "StoreMovedError"),
    *("Listing", "StartingPoint", "Work", "Written", "list_classes"),
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function and class that a package of remask says is for others."""
    packages = [remask.__name__]
    packages += [
        f"remask.{found.name}" for found in pkgutil.iter_modules(remask.__path__) if found.ispkg
    ]
    for package in packages:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            if callable(getattr(module, name)):
                yield name, getattr(module, name)


def takes_paths(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # an alias of a type
        return False
    hints = [inspect.formatannotation(parameter.annotation) for parameter in parameters]
    return any("Path" in hint for hint in hints)


def test_every_public_function_that_takes_a_path_is_tried_here() -> None:
    found = {name for name, function in public_functions() if takes_paths(function)}
    assert found - RECORDS == set(TRIED)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use", dict.fromkeys(TRIED.values()))
def test_a_path_may_be_text_a_path_or_pathlike(
    use: Callable[[Callable[[Path], Any], Path], None],
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named, elsewhere = tmp_path / "named", tmp_path / "elsewhere"
    named.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    use(KINDS[kind], named)  # each asserts that the path named is the one that was taken
    assert not list(elsewhere.iterdir()), "a path was taken for a name in the current folder"


def test_what_is_for_users_to_give_is_never_only_a_path_object() -> None:
    for name, function in public_functions():
        if name in RECORDS or not takes_paths(function):
            continue
        for parameter in inspect.signature(function).parameters.values():
            hint = inspect.formatannotation(parameter.annotation)
            if "Path" in hint:
                assert "os.PathLike" in hint, f"{name}: {parameter}"
                assert "str" in hint, f"{name}: {parameter}"


def test_a_home_folder_is_understood_wherever_data_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    np.savez(tmp_path / "both.npz", inputs=INPUTS, labels=LABELS)
    assert arrays("~/both.npz", tasks=2).num_classes == 2
    with pytest.raises(DataError, match=rf"there is no {tmp_path}/nowhere to take"):
        load_benchmark("split-mnist", data="~/nowhere")
    with pytest.raises(DataError, match=r"cannot find ~nobody-has-this-name/x"):
        load_benchmark("split-mnist", data="~nobody-has-this-name/x")


def test_arrays_says_what_it_wants_instead_of_three_files() -> None:
    with pytest.raises(DataError, match=r"give a pair, \(inputs, labels\)"):
        arrays(("a", "b", "c"), tasks=2)  # type: ignore[arg-type]
