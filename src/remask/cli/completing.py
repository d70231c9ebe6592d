"""What a shell completes after an option, without torch: names of methods, trials, runs."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

Choices = Callable[[Path | None], Iterable[tuple[str, str]]]
"""From the store that was named on the line, if one was, to names, each with a word about it."""
Completion = Callable[..., list[tuple[str, str]]]
"""From what was typed so far to what it may become."""
_MOST_HASHES = 50
_DIGITS_OF_HASH = 12


def one_of(choices: Choices, *, several: bool = False) -> Completion:
    """Complete one of the choices; the last of them, where several have commas between them."""

    def complete(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        given = before.split(",")
        return [
            (f"{before}{comma}{name}", about)
            for name, about in choices(ctx.params.get("store"))
            if name.startswith(last) and name not in given
        ]

    return complete


def words(*names: str) -> Choices:
    """Choices that need no explanation."""
    return lambda _: [(name, "") for name in names]


def _methods(_: Path | None) -> list[tuple[str, str]]:
    from remask.names import MASKED_NAMES, SUMMARIES

    masked = [(name, f"{base} with a mask") for name, (base, _) in MASKED_NAMES.items()]
    return [*SUMMARIES.items(), *masked]


def _encoders(_: Path | None) -> list[tuple[str, str]]:
    from remask.encoders import known_encoders

    found = [(info.name, info.kind) for info in known_encoders()]
    return [("auto", "the installed default"), ("none", "train a net instead"), *found]


def _benchmarks(_: Path | None) -> list[tuple[str, str]]:
    from remask.benchmarks import BENCHMARKS

    return [(name, info.summary) for name, info in BENCHMARKS.items()]


def _data(store: Path | None) -> list[tuple[str, str]]:
    from remask.datasets import DATASETS

    datasets = [(name, dataset.summary) for name, dataset in DATASETS.items()]
    return [*datasets, *_benchmarks(store)]


def _hashes(store: Path | None) -> list[tuple[str, str]]:
    """The newest trials of the store."""
    path = _store(store)
    if path is None or not path.is_file():
        return []
    query = "SELECT config_hash, method, benchmark, seed FROM trials ORDER BY created DESC LIMIT ?"
    # The log of a store that is in use is not read: a completion must leave nothing behind.
    address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as connection:
        return [
            (config_hash[:_DIGITS_OF_HASH], f"{method} on {benchmark}, seed {seed}")
            for config_hash, method, benchmark, seed in connection.execute(query, [_MOST_HASHES])
        ]
    return []


def _runs(store: Path | None) -> list[tuple[str, str]]:
    """The unfinished runs beside the store."""
    path = _store(store)
    folder = None if path is None else path.with_name(f"{path.name}.runs")
    plans = sorted(folder.glob("*/run.json")) if folder is not None else []
    return [(plan.parent.name, "") for plan in plans]


def _store(named: Path | None) -> Path | None:
    from remask.errors import RemaskError
    from remask.results import store_path

    try:
        return store_path(named)
    except RemaskError:
        return None


METHOD = one_of(_methods)
BENCHMARK = one_of(_benchmarks)
NET = one_of(words("mlp", "conv", "resnet18"))
ENCODER = one_of(_encoders)
DATA_NAME = one_of(_data)
EXPERIMENT = one_of(
    words("main", "low-buffer", "ablation", "confidence", "appendix", "all", "gap"), several=True
)
HASH = one_of(_hashes)
RUN = one_of(_runs)
FORMAT = one_of(words("csv", "json", "parquet", "latex", "latex-validation"))

VALUES: dict[str, Completion] = {
    "benchmark": one_of(_benchmarks, several=True),
    "method": one_of(_methods, several=True),
    "mask": one_of(words("none", "auto", "-inf", "-1", "0"), several=True),
    "net": NET,
    "memory": one_of(words("reservoir", "balanced", "merging")),
    "precision": one_of(words("float32", "bf16")),
    "device": one_of(words("cpu", "cuda", "mps")),
    "on": one_of(words("ray")),
    "status": one_of(words("finished", "diverged", "failed"), several=True),
    "hash": one_of(_hashes, several=True),
}
"""By the name of a setting, an option of a run, or a filter."""
