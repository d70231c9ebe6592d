"""A soak finds nothing, and would find a lost or changed trial."""

from pathlib import Path

import pytest

import remask
from remask.store import Store
from tests.runs.soak import soak
from tests.runs.soak_trials import Expected, Request

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


def test_a_lost_or_changed_trial_or_a_file_left_behind_is_found(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    expected = Expected({config.hash: config for config in REQUEST.configs()})
    with Store(path) as store:
        remask.run(configs=REQUEST.configs(), store=store, workers=1, progress=False)
        assert expected.faults(path) == []
        first, second = store.records()
        confidence = (first.confidence[0] * (1 + 2**-52), *first.confidence[1:])
        store.add(first.model_copy(update={"confidence": confidence}), replace=True)
        store.delete([second.config_hash])
    (tmp_path / ".results.db.tmp").touch()
    kinds = {fault.split(":")[0] for fault in expected.faults_at_the_end(path)}
    assert kinds == {"lost", "changed", "left behind"}
