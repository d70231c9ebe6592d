"""Shell completion of values, without torch: names of methods, trials, runs."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from remask.errors import RemaskError

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


def _named_in(module: str, *tables: str) -> Choices:
    """The names in tables of a module, with their summaries if they have any."""

    def named(_: Path | None) -> list[tuple[str, str]]:
        found = import_module(f"remask.{module}")
        return [
            (name, info if isinstance(info, str) else getattr(info, "summary", ""))
            for table in tables
            for name, info in dict(getattr(found, table)).items()
        ]

    return named


def _encoders(_: Path | None) -> list[tuple[str, str]]:
    from remask.encoders.catalogue import known_encoders

    found = [(info.name, info.kind) for info in known_encoders()]
    return [("auto", "the installed default"), ("none", "train a net instead"), *found]


def _experiments(_: Path | None) -> Iterable[str]:
    from remask.papers.experiments import EXPERIMENTS

    return EXPERIMENTS


def _formats(_: Path | None) -> Iterable[str]:
    from remask.store.export import FORMATS

    return FORMATS


def _hashes(named: Path | None) -> list[tuple[str, str]]:
    """The newest trials of the store."""
    from remask.store.database import store_path

    query = "SELECT config_hash, method, benchmark, seed FROM trials ORDER BY created DESC LIMIT ?"
    with suppress(RemaskError, sqlite3.Error):
        # Immutable: completion reads no log of a store in use, and creates no files beside it.
        address = f"{store_path(named).resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            return [
                (config_hash[:_HASH_DIGITS], f"{method} on {benchmark}, seed {seed}")
                for config_hash, method, benchmark, seed in connection.execute(query, [_MAX_HASHES])
            ]
    return []


def _runs(named: Path | None) -> list[str]:
    """The unfinished runs beside the store."""
    from remask.store.database import store_path

    with suppress(RemaskError):
        path = store_path(named)
        plans = path.with_name(f"{path.name}.runs").glob("*/run.json")
        return sorted(plan.parent.name for plan in plans)
    return []


_METHODS = _named_in("names", "SUMMARIES")
_BENCHMARKS = _named_in("data.registry", "BENCHMARKS")
METHOD = one_of(_METHODS)
BENCHMARK = one_of(_BENCHMARKS)
NET = one_of(["mlp", "conv", "resnet18"])
ENCODER = one_of(_encoders)
DATA_NAME = one_of(_named_in("data.registry", "DATASETS", "BENCHMARKS"))
EXPERIMENT = one_of(_experiments, several=True)
HASH = one_of(_hashes)
RUN = one_of(_runs)
FORMAT = one_of(_formats)

VALUES: dict[str, Completion] = {
    "benchmark": one_of(_BENCHMARKS, several=True),
    "method": one_of(_METHODS, several=True),
    "mask": one_of(["none", "auto", "-inf", "-1", "0"], several=True),
    "net": NET,
    "device": one_of(["cpu", "cuda", "mps"]),
    "status": one_of(["finished", "diverged", "failed"], several=True),
    "hash": one_of(_hashes, several=True),
}
"""By the name of a setting, an option of a run, or a filter; others are those of its type."""
