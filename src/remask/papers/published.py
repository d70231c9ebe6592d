"""The paper's settings and figures, read from the JSON files that ship with the package."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Settings:
    """The settings of a method on a benchmark, with where they come from."""

    lr: float
    batch: int
    replay_batch: int
    epochs: int
    weights: Mapping[str, float]
    """By the names that remask gives them; empty where a method's own defaults hold."""
    lr_drops: tuple[int, ...]
    """Epochs of each task after which the learning rate falls to a tenth."""
    source: str


@dataclass(frozen=True)
class Claim:
    """One published figure."""

    benchmark: str
    method: str
    mask: float | None
    buffer: int | None
    setting: str
    """`class-il` or `task-il`."""
    metric: str
    """`A_T` or `F_T`."""
    mean: float
    std: float
    trials: int
    source: str
    """`paper-dagger`: the paper's own runs; `buzzega2020`: quoted there from the paper of DER;
    `arani2022`: from the repository of CLS-ER, not in the paper."""


# Not from a paper: chosen so that the small digits take about as many steps to forget.
_DIGITS = Settings(
    lr=0.1,
    batch=10,
    replay_batch=10,
    epochs=5,
    weights={},
    lr_drops=(),
    source="remask's own choice for the embedded digits",
)
_WEIGHTS = {  # as the JSON file has them -> as remask does
    "alpha": "alpha",
    "beta": "beta",
    "gamma": "gamma",
    "e_lambda": "penalty",
    "c": "c",
    "xi": "xi",
    "wd_reg": "decay",
    "hal_lambda": "anchoring",
    "gss_minibatch_size": "probes",
}
_BASE = {"mser": "er", "msderpp": "derpp"}
_LIKE = {"split-fashion-mnist": "split-mnist"}  # nothing is published: the same shapes and sizes
_AS = {  # where a method itself has no settings
    "er_ace": "er",
    "er_ema": "er",
    "er_las": "er",
    "lode": "er",
    "cls_er": "er",
    "icarl-dark": "icarl",
    "pnn-independent": "pnn",
}
_BENCHMARKS = {"split-tinyimagenet": "split-tiny-imagenet"}  # as remask spells them


@cache
def _settings() -> dict[tuple[str, str], dict[int, Settings]]:
    """(benchmark, method) -> buffer -> settings; buffer 0 for a method without memory."""
    table: dict[tuple[str, str], dict[int, Settings]] = {}
    for entry in _read("hyperparameters.json")["entries"]:
        if entry["method"] in _BASE:
            continue  # a masked method has the settings of the method it masks
        benchmark = _BENCHMARKS.get(entry["dataset"], entry["dataset"])
        by_buffer = table.setdefault((benchmark, entry["method"]), {})
        by_buffer[entry["buffer"] or 0] = Settings(
            lr=entry["lr"],
            batch=entry["batch_size"],
            replay_batch=entry["minibatch_size"] or 0,
            epochs=entry["n_epochs"],
            weights=_weights_of(entry),
            lr_drops=tuple((entry.get("lr_schedule") or {"milestones": ()})["milestones"]),
            source=entry["source"],
        )
    return table


def _weights_of(entry: dict[str, Any]) -> dict[str, float]:
    weights = {
        ours: float(entry[theirs])
        for theirs, ours in _WEIGHTS.items()
        if entry.get(theirs) is not None
    }
    if entry.get("weight_decay"):  # the optimiser's w * theta is the gradient of w / 2 * |theta|^2
        weights["decay"] = entry["weight_decay"] / 2
    weights.update(entry.get("weights", {}))
    return weights


def published_settings(benchmark: str, method: str, buffer: int) -> Settings | None:
    """The published settings, those of the nearest buffer where the size itself has none.

    None if nothing was published for the method on the benchmark.
    """
    if benchmark == "split-digits":
        return _DIGITS
    like = _LIKE.get(benchmark, benchmark)
    by_buffer = _settings().get((like, method)) or _settings().get((like, _AS.get(method, "")))
    if not by_buffer:
        return None
    return by_buffer[min(by_buffer, key=lambda size: abs(size - buffer))]


@cache
def claims() -> tuple[Claim, ...]:
    """Every published figure."""
    found: Iterable[dict[str, Any]] = _read("results.json")
    return tuple(
        Claim(
            benchmark=_BENCHMARKS.get(entry["dataset"], entry["dataset"]),
            method=_BASE.get(entry["method"], entry["method"]),
            mask=None if entry["mask"] is None else float(entry["mask"]),
            buffer=entry["buffer"],
            setting=entry["setting"],
            metric=entry["metric"],
            mean=entry["mean"],
            std=entry["std"],
            trials=entry["trials"],
            source=entry["source"],
        )
        for entry in found
    )


def _read(name: str) -> Any:
    return json.loads(resources.files(__package__).joinpath("data", name).read_text("utf-8"))
