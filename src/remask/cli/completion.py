"""Shell completion of values, without torch: names of methods, trials, runs."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

Choices = Callable[[Path | None], Iterable[str | tuple[str, str]]]
"""Returns names, or names with a description, given the store that was named, if any."""
Completion = Callable[..., list[tuple[str, str]]]
_MAX_HASHES, _HASH_DIGITS = 50, 12


def one_of(choices: Choices | Iterable[str], *, several: bool = False) -> Completion:
    """Complete one of the choices, or the last of several with commas between them."""

    def complete(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        named = choices(ctx.params.get("store")) if callable(choices) else choices
        return [
            (f"{before}{comma}{name}", text)
            for name, text in (each if isinstance(each, tuple) else (each, "") for each in named)
            if name.startswith(last) and name not in before.split(",")
        ]

    return complete


def _methods(_: Path | None) -> Iterable[tuple[str, str]]:
    from remask.names import SUMMARIES

    return SUMMARIES.items()


def _encoders(_: Path | None) -> list[tuple[str, str]]:
    from remask.encoders.catalogue import known_encoders

    found = [(info.name, info.kind) for info in known_encoders()]
    return [("auto", "the installed default"), ("none", "train a net instead"), *found]


def _benchmarks(_: Path | None) -> list[tuple[str, str]]:
    from remask.data.registry import BENCHMARKS

    return [(name, info.summary) for name, info in BENCHMARKS.items()]


def _data(store: Path | None) -> list[tuple[str, str]]:
    from remask.data.registry import DATASETS

    datasets = [(name, dataset.summary) for name, dataset in DATASETS.items()]
    return [*datasets, *_benchmarks(store)]


def _experiments(_: Path | None) -> Iterable[str]:
    from remask.papers.experiments import EXPERIMENTS

    return EXPERIMENTS


def _formats(_: Path | None) -> Iterable[str]:
    from remask.store.export import FORMATS

    return FORMATS


def _hashes(store: Path | None) -> list[tuple[str, str]]:
    """The newest trials of the store."""
    query = "SELECT config_hash, method, benchmark, seed FROM trials ORDER BY created DESC LIMIT ?"
    # Immutable: completion reads no log of a store in use, and creates no files beside it.
    address = f"{_store(store).resolve().as_uri()}?mode=ro&immutable=1"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as connection:
        return [
            (config_hash[:_HASH_DIGITS], f"{method} on {benchmark}, seed {seed}")
            for config_hash, method, benchmark, seed in connection.execute(query, [_MAX_HASHES])
        ]
    return []


def _runs(store: Path | None) -> list[str]:
    """The unfinished runs beside the store."""
    path = _store(store)
    plans = path.with_name(f"{path.name}.runs").glob("*/run.json")
    return sorted(plan.parent.name for plan in plans)


def _store(named: Path | None) -> Path:
    from remask.errors import RemaskError
    from remask.store.database import store_path

    try:
        return store_path(named)
    except RemaskError:
        return Path("/nowhere/results.db")


METHOD = one_of(_methods)
BENCHMARK = one_of(_benchmarks)
NET = one_of(["mlp", "conv", "resnet18"])
ENCODER = one_of(_encoders)
DATA_NAME = one_of(_data)
EXPERIMENT = one_of(_experiments, several=True)
HASH = one_of(_hashes)
RUN = one_of(_runs)
FORMAT = one_of(_formats)

VALUES: dict[str, Completion] = {
    "benchmark": one_of(_benchmarks, several=True),
    "method": one_of(_methods, several=True),
    "mask": one_of(["none", "auto", "-inf", "-1", "0"], several=True),
    "net": NET,
    "device": one_of(["cpu", "cuda", "mps"]),
    "status": one_of(["finished", "diverged", "failed"], several=True),
    "hash": one_of(_hashes, several=True),
}
"""By the name of a setting, an option of a run, or a filter; others are those of its type."""
