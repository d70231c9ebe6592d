"""A Ray cluster of several nodes on this machine, and trials to run on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

HOST = "127.0.0.2"  # Ray takes 127.0.0.1 for another name of the machine's address in its network
_NODE = {
    "node_ip_address": HOST,
    "num_cpus": 1,
    "object_store_memory": 80 << 20,
    "include_dashboard": False,
}


class Nodes:
    """A cluster whose head has one CPU, as has every node that is added."""

    def __init__(self, **head: Any) -> None:
        # Ray is an extra: mypy need not know it.
        cluster = import_module("ray.cluster_utils").Cluster
        self._cluster = cluster(initialize_head=True, head_node_args={**_NODE, **head})
        self.address = str(self._cluster.address)

    def add(self) -> Any:
        return self._cluster.add_node(**_NODE)

    def kill(self, node: Any) -> None:
        """As if it were unplugged: its processes get no word of it."""
        self._cluster.remove_node(node, allow_graceful=False)

    def shut_down(self) -> None:
        self._cluster.shutdown()


@contextmanager
def nodes(count: int, **head: Any) -> Iterator[Nodes]:
    """A cluster, up while in the block, that this process is connected to."""
    ray: Any = import_module("ray")
    # Nobody else reaches the address, and a token would be written into the user's home.
    os.environ["RAY_AUTH_MODE"] = "disabled"
    cluster = Nodes(**head)
    try:
        for _ in range(count - 1):
            cluster.add()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shut_down()
        del os.environ["RAY_AUTH_MODE"]


def write_method(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, in_loss: str) -> str:
    """Write ER with something more in its loss, as a module of the user's own; returns its name.

    `in_loss` is what happens at every 20th call in a process; `first` is whether
    this is the first process to get there.
    """
    source = f"""
import os, signal, time
from pathlib import Path
import torch
from remask.methods.er import ER

_calls = 0
_here = Path({str(folder)!r})

def _count():
    global _calls
    _calls += 1
    if _calls % 20 == 0:
        there = _here / "{name}.tries"
        tries = len(there.read_text().splitlines()) if there.exists() else 0
        with there.open("a") as file:
            file.write(f"{{os.getpid()}} {{__file__}}\\n")
        first = tries == 0
        {in_loss}

class Changed(ER):
    def loss(self, step):
        _count()
        return super().loss(step)
"""
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    return f"{name}:Changed"


def tries_of(folder: Path, name: str) -> list[str]:
    """The process and the file of each try to run a method of `write_method`."""
    return (folder / f"{name}.tries").read_text().splitlines()
