"""A cluster whose nodes watch their memory."""

from pathlib import Path

import pytest

import remask as public
from remask.experiments import Ray
from remask.machine import free_memory
from remask.store import Store
from tests.runs.ray_nodes import nodes, tries_of, write_method
from tests.runs.run_samples import run_here, shown, small

pytest.importorskip("ray")
pytestmark = pytest.mark.ray
_GIGABYTE = 1 << 30


def test_a_stack_that_takes_too_much_memory_is_ended_by_its_node_and_the_rest_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    free = free_memory()
    assert free is not None
    if free < 6 * _GIGABYTE:
        pytest.skip("too little memory is free to run out of a part of it")
    threshold = 1 - (free - 3 * _GIGABYTE) / total
    take = "hoard = [torch.ones(1 << 28) for _ in range(4)]; time.sleep(20)"
    name = write_method(tmp_path, monkeypatch, "takes_much_memory", take)
    configs = [*small(1, method=name), *small(1)]
    watching = {"memory_usage_threshold": threshold, "memory_monitor_refresh_ms": 100}
    with nodes(1, _system_config=watching) as cluster, Store(tmp_path / "results.db") as store:
        executor = Ray(cluster.address, tries=2)
        results = public.run(configs=configs, store=store, progress=False, executor=executor)
        (failure,) = results.failures
        assert "ran out, and Ray ended the worker process, the last of 2 tries" in failure
        rows = [row for row in shown(store) if row[1] == "finished"]  # type: ignore[index]
        assert rows == run_here(tmp_path, small(1))
    assert len(tries_of(tmp_path, "takes_much_memory")) == 2
