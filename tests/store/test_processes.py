"""Several processes at one store, and processes that are killed."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from remask.store import Store

ADD = """
import sys
from tests.store.store_samples import make_config, make_record
from remask.store import Store

path, who, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
with Store(path) as store:
    for seed in range(first, last):
        if store.add(make_record(make_config(seed=seed), commit=who)):
            print(seed, flush=True)
"""


def start_adding(path: Path, who: str, first: int, last: int) -> "subprocess.Popen[str]":
    """A process that adds the trials of these seeds and prints those it has written."""
    process = subprocess.Popen(
        [sys.executable, "-c", ADD, str(path), who, str(first), str(last)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
        },
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def let_go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))


@pytest.mark.processes
def test_processes_that_add_at_once_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    # Each shares half of its seeds with the next; the file is not there when they begin.
    adding = {f"{n}": start_adding(path, f"{n}", 25 * n, 25 * n + 50) for n in range(4)}
    for process in adding.values():
        let_go(process)
    written = {
        who: [int(line) for line in process.communicate(timeout=120)[0].split()]
        for who, process in adding.items()
    }
    assert [process.returncode for process in adding.values()] == [0, 0, 0, 0]
    assert sorted(seed for seeds in written.values() for seed in seeds) == list(range(125))
    with Store(path) as store:
        stored = {record.seed: record.commit for record in store.records()}
        assert store.count() == 125
    assert stored == {seed: who for who, seeds in written.items() for seed in seeds}


def kill_while_adding(path: Path, first: int, moment: float) -> list[int]:
    """The seeds whose add had returned True when the process was killed."""
    process = start_adding(path, "victim", first, first + 1_000_000)
    let_go(process)
    assert process.stdout is not None
    begun = process.stdout.readline()
    time.sleep(moment)
    process.kill()
    # A line without its end was cut off by the kill, and may be any number's beginning.
    # (Not communicate(): it would not see what readline() has taken beyond its line.)
    lines = (begun + process.stdout.read()).splitlines(keepends=True)
    process.communicate()
    assert process.returncode == -9
    return [int(line) for line in lines if line.endswith("\n")]


@pytest.mark.processes
@pytest.mark.parametrize("rounds", [4, pytest.param(40, marks=pytest.mark.faults)])
def test_what_was_added_survives_a_kill_at_any_moment(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "results.db"
    chance = random.Random(rounds)
    promised: set[int] = set()
    for number in range(rounds):
        promised |= set(kill_while_adding(path, number * 1_000_000, chance.uniform(0, 0.3)))
        with Store(path) as store:
            stored = {record.seed for record in store.records()}
        assert promised <= stored
        # At most the one add that was under way may have been written and not reported.
        assert len(stored - promised) <= number + 1
        assert sound(path)
    assert len(promised) >= rounds
