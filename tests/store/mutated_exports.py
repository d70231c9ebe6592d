"""Exports of ours with anything in them replaced, left out, doubled or made longer."""

from contextlib import suppress
from typing import Any

from remask.config import TrialConfig
from remask.experiments.configs import trial_configs
from remask.store.export import trial_json
from tests.store.store_samples import (
    diverged,
    failed,
    make_config,
    make_records,
    trial_with_accuracy,
)

ODD_TEXTS = ["[/foo]", "\x1b[2J", "=1+1", "-inf", "9999-12-31T23:59:59-09:00", "\ud800", "x" * 600]
CHANGES = ["replace", "replace", "remove", "double", "nest"]


def our_export() -> list[dict[str, Any]]:
    """Trials of all kinds, as `remask results export` writes them."""
    published = trial_configs(benchmark="split-mnist", method="derpp", masks=[-1.0], seeds=range(2))
    records = [
        *make_records(2, mask=-1, weights={"gamma": 0.5}, class_order=[1, 0], lr_drops=[2, 4]),
        *(trial_with_accuracy(config, 80.0, forgetting=5.0) for config in published),
        diverged(make_config(seed=7)),
        failed(make_config(seed=8)),
    ]
    return [trial_json(record) for record in records]


def mutate(tree: Any, path: list[int], change: str, value: Any) -> None:
    """Walk down by the numbers of `path`, as far as it goes, and change what is there."""
    parent: Any = None
    key: Any = None
    part = tree
    for step in path:
        if not isinstance(part, dict | list) or not part:
            break
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        parent, key = part, keys[step % len(keys)]
        part = part[key]
    if parent is None:
        return
    if change == "remove":
        del parent[key]
    elif change == "double" and isinstance(part, list):
        parent[key] = part * 2
    else:
        parent[key] = [part] if change == "nest" else value


def with_their_hashes(trials: list[Any]) -> None:
    """Most changes of a config shall be met by more than the check of its hash."""
    for trial in trials:
        if (name := hash_of(trial)) is not None:
            trial["config_hash"] = name


def hash_of(trial: Any) -> str | None:
    """The hash of a trial's config, if it still has one."""
    with suppress(ValueError, TypeError, KeyError):
        return TrialConfig.model_validate(trial["config"]).hash
    return None
