"""Shell completion of values, without torch: names of methods, trials, runs."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

Choices = Callable[[Path | None], Iterable[tuple[str, str]]]
"""Returns names and a description of each, given the store that was named, if any."""
Completion = Callable[..., list[tuple[str, str]]]
_MAX_HASHES, _HASH_DIGITS = 50, 12


def one_of(choices: Choices | str, *, several: bool = False) -> Completion:
    """Complete one of the choices, or the last of several with commas between them."""

    def complete(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        if isinstance(choices, str):
            found: Iterable[tuple[str, str]] = [(name, "") for name in choices.split()]
        else:
            found = choices(ctx.params.get("store"))
        return [
            (f"{before}{comma}{name}", text)
            for name, text in found
            if name.startswith(last) and name not in before.split(",")
        ]

    return complete


def _methods(_: Path | None) -> list[tuple[str, str]]:
    from remask.names import MASKED_NAMES, SUMMARIES

    masked = [(name, f"{base} with a mask") for name, (base, _) in MASKED_NAMES.items()]
    return [*SUMMARIES.items(), *masked]


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


def _runs(store: Path | None) -> list[tuple[str, str]]:
    """The unfinished runs beside the store."""
    path = _store(store)
    plans = path.with_name(f"{path.name}.runs").glob("*/run.json")
    return [(plan.parent.name, "") for plan in sorted(plans)]


def _store(named: Path | None) -> Path:
    from remask.errors import RemaskError
    from remask.store.database import store_path

    try:
        return store_path(named)
    except RemaskError:
        return Path("/nowhere/results.db")


METHOD = one_of(_methods)
BENCHMARK = one_of(_benchmarks)
NET = one_of("mlp conv resnet18")
ENCODER = one_of(_encoders)
DATA_NAME = one_of(_data)
EXPERIMENT = one_of("main low-buffer ablation confidence appendix all gap", several=True)
HASH = one_of(_hashes)
RUN = one_of(_runs)
FORMAT = one_of("csv json parquet latex latex-validation")

VALUES: dict[str, Completion] = {
    "benchmark": one_of(_benchmarks, several=True),
    "method": one_of(_methods, several=True),
    "mask": one_of("none auto -inf -1 0", several=True),
    "net": NET,
    "memory": one_of("reservoir balanced merging"),
    "precision": one_of("float32 bf16"),
    "device": one_of("cpu cuda mps"),
    "on": one_of("ray"),
    "status": one_of("finished diverged failed", several=True),
    "hash": one_of(_hashes, several=True),
}
"""By the name of a setting, an option of a run, or a filter."""
