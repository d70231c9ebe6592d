"""A soak finds nothing, and would find what there is."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from remask.results import Store
from tests.runs.forked import ForkedRemask
from tests.runs.soak import soak
from tests.runs.soak_trials import Expected, Request, watching
from tests.runs.soaked import Soaked

REQUEST = Request(("er",), (None,), range(2))


@pytest.mark.faults
@pytest.mark.processes
@pytest.mark.parametrize("minutes", [0.1, 3.0])
def test_a_soak_loses_doubles_and_changes_nothing(minutes: float) -> None:
    done = soak(seed=1, minutes=minutes)
    print(done.summary())
    assert done.faults == []
    assert done.trials > 0
    assert done.kills > 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store with all that is asked for."""
    path = tmp_path_factory.mktemp("whole") / "results.db"
    run = ForkedRemask([*REQUEST.command(), "--workers", "1"], path)
    said = run.communicate(120)[1]
    assert run.returncode == 0, said
    return path.read_bytes()


@pytest.fixture
def store(tmp_path: Path, whole: bytes) -> Path:
    path = tmp_path / "place" / "results.db"
    path.parent.mkdir()
    path.write_bytes(whole)
    return path


def expected() -> Expected:
    return Expected({config.hash: config for config in REQUEST.configs()})


def change(statement: str) -> Callable[[Path], object]:
    def do(store: Path) -> None:
        with closing(sqlite3.connect(store, isolation_level=None)) as connection:
            assert connection.execute(statement).rowcount > 0

    return do


def another_number(store: Path) -> None:
    with Store(store) as opened:
        record = next(opened.records())
        confidence = (record.confidence[0] * (1 + 2**-52), *record.confidence[1:])
        opened.add(record.model_copy(update={"confidence": confidence}), replace=True)


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (change("DELETE FROM trials WHERE seed = 1"), "lost"),
        (change("UPDATE trials SET details = '[' WHERE seed = 1"), "changed"),
        (another_number, "changed"),
        (Path.unlink, "lost"),
        (lambda store: store.with_name(".results.db.tmp").touch(), "left behind"),
        (lambda store: (store.parent / "results.db.runs" / "x").mkdir(parents=True), "left behind"),
    ],
)
def test_what_is_lost_changed_or_left_behind_is_found(
    store: Path, harm: Callable[[Path], object], kind: str
) -> None:
    known, unknown = expected(), expected()
    assert known.faults_at_the_end(store) == []
    harm(store)
    for before in (known, unknown):
        assert kind in {fault.split(":")[0] for fault in before.faults_at_the_end(store)}


@pytest.mark.processes
def test_a_trial_that_is_computed_although_it_is_stored_is_found(
    store: Path, tmp_path: Path
) -> None:
    log = tmp_path / "doubled.txt"

    def forget() -> None:
        watching(log)()
        Store.is_done = lambda *_: False  # type: ignore[method-assign]

    run = ForkedRemask([*REQUEST.command(), "--workers", "1"], store, prepare=forget)
    run.communicate(120)
    assert sorted(log.read_text().split()) == sorted(["doubled:"] * 2 + [*expected().wanted])


@pytest.mark.processes
def test_an_end_that_nothing_explains_is_found(store: Path, tmp_path: Path) -> None:
    for args, is_explained in ((REQUEST.command(), True), (["run", "--benchmark", "mnits"], False)):
        run = Soaked(args, store, tmp_path / "doubled.txt", terminal=False)
        run.said = run.output()
        assert (run.fault() is None) == is_explained
