"""Runs on a real cluster of two nodes: the same bits, whatever is done to it."""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import remask as public
from remask.experiments import Ray, RunOptions, ThisProcess
from remask.experiments.jobs import Advanced, Note, unfinished_runs
from remask.experiments.plans import rates_of
from remask.experiments.ray_cluster import ClusterError
from remask.store import Store
from tests.command_line import CommandLine, start
from tests.runs.ray_nodes import Nodes, nodes, tries_of
from tests.runs.ray_nodes import write_method as method
from tests.runs.run_samples import events_of, planned, run_here, shown, small, stop_when

pytest.importorskip("ray")
pytestmark = pytest.mark.ray
QUICK = RunOptions(checkpoint_seconds=0.1)
LONG_ENOUGH = 1200  # epochs: a fast machine must not be done before a third node is at work
LONG = small(2, epochs=LONG_ENOUGH)
"""Two stacks that take long enough to be disturbed."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with nodes(2) as started:
        yield started


@pytest.fixture(scope="module")
def long_expected(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    return run_here(tmp_path_factory.mktemp("expected"), LONG)


def test_a_cluster_gives_the_same_bits_and_says_where(cluster: Nodes, tmp_path: Path) -> None:
    configs = small(5)
    with Store(tmp_path / "results.db") as store:
        executor = Ray(cluster.address, logs=tmp_path / "logs")
        public.run(configs=configs, store=store, progress=False, executor=executor)
        assert shown(store) == run_here(tmp_path, configs)
        assert all(record.machine["host"] for record in store.records())
    logs = [path.read_text() for path in (tmp_path / "logs").iterdir()]
    assert len(logs) == 2, "five trials are cut into a stack per node"
    assert len({text.partition("node ")[2].split()[0] for text in logs}) == 2
    assert all('"benchmark":"split-digits"' in text for text in logs)


def test_own_code_is_shipped_and_its_version_recorded(
    cluster: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = small(1, method=method(tmp_path, monkeypatch, "shipped_method", "pass"))
    with Store(tmp_path / "results.db") as store:
        public.run(configs=configs, store=store, progress=False, executor=Ray(cluster.address))
        (there,) = store.records()
        assert shown(store) == run_here(tmp_path, configs)
    with Store(tmp_path / "expected.db") as store:
        (here,) = store.records()
    assert there.own_code == here.own_code != {}
    tries = tries_of(tmp_path, "shipped_method")
    on_node, in_this_process = (Path(line.split()[1]) for line in tries)
    assert "remask-stack-" in str(on_node)
    assert "remask-stack-" not in str(in_this_process)
    assert not on_node.parent.exists(), "the node keeps no copy of it"


def test_a_worker_that_is_killed_is_replaced(
    cluster: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    die = "if first: os.kill(os.getpid(), signal.SIGKILL)"
    name = method(tmp_path, monkeypatch, "killed_once", die)
    configs = [*small(1, method=name), *small(2)]
    with Store(tmp_path / "results.db") as store:
        run = planned(store, configs)
        events = list(events_of(store, run, Ray(cluster.address)))
        (note,) = (event.text for event in events if isinstance(event, Note))
        assert "the worker process on" in note
        assert note.endswith("died; retrying from the start")
        assert shown(store) == run_here(tmp_path, configs)
    assert len(tries_of(tmp_path, "killed_once")) == 3, "two on the cluster, one here"


@pytest.mark.parametrize("shared", ["a folder", "an address", "nothing"])
def test_a_node_that_dies_costs_no_trial(
    shared: str, cluster: Nodes, tmp_path: Path, long_expected: list[object]
) -> None:
    doomed = cluster.add()
    folder = tmp_path / "checkpoints"
    places = {"a folder": str(folder), "an address": f"file://{folder}", "nothing": None}
    with Store(tmp_path / "results.db") as store:
        # A third place: three stacks, and one of them is on the node that dies.
        configs = [*LONG, *small(3, epochs=LONG_ENOUGH)[2:]]
        run = planned(store, configs)
        executor = Ray(cluster.address, checkpoints=places[shared])
        begun: dict[str, list[int]] = {job.name: [] for job in run.jobs}
        notes: list[str] = []
        for event in events_of(store, run, executor, QUICK):
            if isinstance(event, Note):
                notes.append(event.text)
                begun[event.job].append(-1)
            if isinstance(event, Advanced):
                begun[event.job].append(event.steps_done)
            if doomed is not None and all(max(s, default=0) > 50 for s in begun.values()):
                cluster.kill(doomed)
                doomed = None
        assert len(notes) == 1
        how = "the start" if shared == "nothing" else "the latest checkpoint"
        assert notes[0].endswith(f"; retrying from {how}")
        (lost,) = (steps for steps in begun.values() if -1 in steps)
        first_of_the_next = lost[lost.index(-1) + 1]
        assert (first_of_the_next == 0) == (shared == "nothing")
        assert [row for row in shown(store) if row[0] in LONG] == long_expected  # type: ignore[index]
        assert store.count() == 3
    assert not any(folder.rglob("checkpoint-*")), "what is stored needs no checkpoint"


def test_a_node_that_comes_late_is_used(cluster: Nodes, tmp_path: Path) -> None:
    configs = small(12, epochs=10)
    late = None
    try:
        with Store(tmp_path / "results.db") as store:
            run = planned(store, configs)
            executor = Ray(cluster.address, logs=tmp_path / "logs")
            for event in events_of(store, run, executor):
                if late is None and isinstance(event, Advanced):
                    late = cluster.add()
            assert shown(store) == run_here(tmp_path, configs)
        logs = [path.read_text() for path in (tmp_path / "logs").iterdir()]
        assert len({text.partition("node ")[2].split()[0] for text in logs}) == 3
    finally:
        if late is not None:
            cluster.kill(late)


@pytest.mark.parametrize("shared", [True, False])
def test_a_stop_saves_everything_and_the_run_goes_on(
    shared: bool, cluster: Nodes, tmp_path: Path, long_expected: list[object]
) -> None:
    def executor() -> Ray:
        return Ray(cluster.address, checkpoints=tmp_path / "checkpoints" if shared else None)

    with Store(tmp_path / "results.db") as store:
        run = planned(store, LONG)
        is_begun = lambda e: isinstance(e, Advanced) and e.steps_done > 20  # noqa: E731
        stopped = stop_when(is_begun, signal.SIGINT, store, run, executor())
        assert stopped.unsaved == []
        (run,) = unfinished_runs(store.path)
        place = tmp_path / "checkpoints" if shared else run.folder
        assert any(place.glob("*/checkpoint-*"))
        # Checkpoints that lie beside the store are any executor's.
        other = executor() if shared else ThisProcess()
        first: dict[str, int] = {}
        for event in events_of(store, run, other):
            if isinstance(event, Advanced):
                first.setdefault(event.job, event.steps_done)
        assert max(first.values()) > 20
        assert shown(store) == long_expected


def test_a_driver_that_is_killed_leaves_nothing_and_starts_again(
    cluster: Nodes, tmp_path: Path
) -> None:
    store, checkpoints = tmp_path / "results.db", tmp_path / "checkpoints"
    command = (
        *("run", "--benchmark", "split-digits", "--limit", "20", "--epochs", "60", "--trials", "2"),
        *("--on", "ray", "--address", cluster.address, "--checkpoints", str(checkpoints)),
        *("--checkpoint-seconds", "0.1"),
    )
    driver = start(*command, store=store)
    deadline = time.monotonic() + 120
    while not any(checkpoints.glob("*/checkpoint-*")):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    driver.kill()
    driver.communicate()
    driver = start(*command, store=store)
    out, err = driver.communicate(timeout=180)
    assert driver.returncode == 0, err
    assert "ER" in out
    configs = small(2, epochs=60)
    with Store(store) as opened:
        assert shown(opened) == run_here(tmp_path, configs)
    assert unfinished_runs(store) == []


def test_a_stack_that_always_dies_is_reported_and_the_rest_finishes(
    cluster: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remask: CommandLine
) -> None:
    die = "import faulthandler; faulthandler.enable(); os.abort()"
    name = method(tmp_path, monkeypatch, "always_dies", die)
    answer = remask(
        *("run", "--benchmark", "split-digits", "--limit", "20", "--epochs", "1", "--trials", "1"),
        *("--method", f"er,{name}", "--on", "ray", "--address", cluster.address, "--tries", "2"),
    )
    assert answer.code == 1
    assert "on split-digits, buffer 20, seed 0: the worker process on" in answer.text
    assert "died, the last of 2 tries" in answer.text
    assert "Fatal Python error: Aborted" in answer.err
    assert "always_dies.py" in answer.err, "what the process printed last says where it was"
    assert len(tries_of(tmp_path, "always_dies")) == 2
    with Store(tmp_path / "results.db") as store:
        by_method = {record.config.method: record for record in store.records()}
    assert by_method["er"].status == "finished"
    assert by_method[name].status == "failed"


@pytest.mark.parametrize(
    ("name", "in_loss", "says"),
    [
        ("always_fails", "1 / 0", "ZeroDivisionError: division by zero"),
        ("takes_all_memory", "torch.empty(1 << 60)", "out of memory"),
    ],
)
def test_a_stack_that_always_fails_is_reported_with_the_remote_traceback(
    name: str,
    in_loss: str,
    says: str,
    cluster: Nodes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configs = [*small(1, method=method(tmp_path, monkeypatch, name, in_loss)), *small(1)]
    with Store(tmp_path / "results.db") as store:
        results = public.run(
            configs=configs, store=store, progress=False, executor=Ray(cluster.address, tries=2)
        )
        (failure,) = results.failures
        assert says in failure
        assert "the last of 2 tries" in failure
        if name == "always_fails":  # running out of memory is described in a sentence
            assert f"{name}.py" in failure
            assert "Traceback" in failure
        assert store.count({"status": "finished"}) == 1
    assert len(tries_of(tmp_path, name)) == 2


LARGE = """
import torch
import remask
def load():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(5000)
    inputs = torch.randint(0, 256, (20000, 3, 48, 48), generator=generator, dtype=torch.uint8)
    parts = (inputs, labels, inputs[:40], labels[:40])
    return remask.Benchmark("large", *parts, ((0, 1), (2, 3)), scale=1 / 255)
"""


def test_data_larger_than_the_object_store_is_trained_on(
    cluster: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large_data.py").write_text(LARGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    configs = [config.model_copy(update={"benchmark": "large_data:load"}) for config in small(2)]
    with Store(tmp_path / "results.db") as store:
        public.run(configs=configs, store=store, progress=False, executor=Ray(cluster.address))
        assert shown(store) == run_here(tmp_path, configs)
        assert all("large_data" in record.own_code for record in store.records())


def test_nets_are_saved_on_the_machine_that_asked(cluster: Nodes, tmp_path: Path) -> None:
    public.run(
        configs=small(1),
        store=tmp_path / "results.db",
        progress=False,
        save_nets=tmp_path / "nets",
        on="ray",
        address=cluster.address,
    )
    (net,) = (tmp_path / "nets").glob("*.json")
    assert public.load_net(net.with_suffix("")) is not None


def test_a_dry_run_plans_for_the_cluster_at_hand(cluster: Nodes, remask: CommandLine) -> None:
    answer = remask(
        *("reproduce", "all", "--benchmark", "split-mnist", "--dry-run"),
        *("--on", "ray", "--address", cluster.address),
    )
    assert answer.code == 0
    assert "72 cells, 720 trials, 720 to run: about" in answer.text
    assert re.search(r"with 2 at a time, in \d+ stacks, the longest of", answer.text)


def test_what_fails_on_a_node_while_planning_is_told(cluster: Nodes) -> None:
    (config,) = small(1)
    wrong = RunOptions(device="no-such-device", on="ray", address=cluster.address)
    with pytest.raises(ClusterError, match="a measurement on a node failed"):
        Ray.of(wrong).call(rates_of, config, 1, wrong, options=wrong)
