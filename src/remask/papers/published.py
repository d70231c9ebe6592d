"""Published settings and figures, read from the JSON files that ship with the package."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from remask.config import Protocol


@dataclass(frozen=True)
class Settings:
    """The settings of a method on a benchmark, and their source."""

    lr: float
    batch: int
    replay_batch: int
    epochs: int
    weights: Mapping[str, float]  # empty where the method's own defaults apply
    lr_drops: tuple[int, ...]  # epochs of each task after which the learning rate is divided by ten
    source: str
    net: str = ""  # of benchmarks with photographs; empty: the benchmark's


@dataclass(frozen=True)
class Claim:
    """One published figure."""

    benchmark: str
    method: str
    mask: float | None
    buffer: int  # 0 for a method without memory
    setting: str  # `class-il` or `task-il`
    metric: str  # `A_T` or `F_T`
    mean: float
    std: float  # NaN: not published
    trials: int
    source: str
    """`paper-dagger`: the paper's own runs; `buzzega2020`: quoted there from the DER paper;
    `arani2022`: from the CLS-ER repository, not in the paper; `caccia2022`: the ER-ACE paper, and
    `caccia2022-sweep`: the validation accuracy of the best setting in its authors' sweep;
    `buzzega2020b`: *Rethinking experience replay*."""
    protocol: Protocol = "paper"
    augment: bool = True
    share: float = 1.0


# Not from a paper: chosen so that forgetting the small digits takes about as many steps.
_DIGITS = Settings(0.1, 10, 10, 5, {}, (), "remask's own choice for the embedded digits")
_LIKE = dict.fromkeys(  # nothing is published: same shapes and sizes
    ("split-fashion-mnist", "permuted-mnist", "rotated-mnist"), "split-mnist"
)
_AS = {  # methods without published settings of their own
    "er_ace": "er",
    "er_ema": "er",
    "er_las": "er",
    "mir": "er",
    "ss_il": "er",
    "lode": "er",
    "cls_er": "er",
    "icarl-dark": "icarl",
    "pnn-independent": "pnn",
}


@cache
def _settings() -> dict[tuple[str, str], dict[int, Settings]]:
    """(benchmark, method) -> buffer -> settings."""
    table: dict[tuple[str, str], dict[int, Settings]] = {}
    for entry in read_data("hyperparameters.json")["entries"]:
        entry.pop("notes", None)
        key = (entry.pop("benchmark"), entry.pop("method"))
        buffer, lr_drops = entry.pop("buffer"), tuple(entry.pop("lr_drops"))
        table.setdefault(key, {})[buffer] = Settings(**entry, lr_drops=lr_drops)
    return table


def published_settings(
    benchmark: str,
    method: str,
    buffer: int,
    *,
    protocol: Protocol = "paper",
    augment: bool = True,
    share: float = 1.0,
) -> Settings | None:
    """The published settings for the nearest published buffer size; None if there are none.

    Those of the other protocols were published for one benchmark; all benchmarks share them.
    """
    if protocol == "online":
        like = "split-cifar10, online" + ", not augmented" * (not augment)
    elif protocol == "rethinking":
        like = "split-fashion-mnist, rethinking"
    elif benchmark == "split-digits":
        return _DIGITS
    else:
        like = _LIKE.get(benchmark, benchmark)
    by_buffer = _settings().get((like, method)) or _settings().get((like, _AS.get(method, "")))
    if not by_buffer:
        return None
    found = by_buffer[min(by_buffer, key=lambda size: abs(size - buffer))]
    few = protocol == "online" and share < 1
    return replace(found, replay_batch=2 * found.replay_batch) if few else found


@cache
def claims() -> tuple[Claim, ...]:
    """All published figures."""
    found = read_data("results.json")
    for entry in found:
        entry["mask"] = None if entry["mask"] is None else float(entry["mask"])  # "-inf"
        entry["std"] = math.nan if entry["std"] is None else entry["std"]
    return tuple(Claim(**entry) for entry in found)


def read_data(name: str) -> Any:
    """The content of a JSON file of this package."""
    return json.loads(resources.files(__package__).joinpath("data", name).read_text("utf-8"))
