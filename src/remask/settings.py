"""From what a user asks for to the configs of the trials to run."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from remask.benchmarks import BENCHMARKS
from remask.config import TrialConfig
from remask.errors import RemaskError
from remask.methods import MASKED_NAMES, Method, find_method
from remask.names import UnknownNameError, nearest, unknown
from remask.papers import published_settings

_BUFFERS = {"split-digits": 20}
_DEFAULT_BUFFER = 200
_NETS = {
    "split-cifar10": "resnet18",
    "split-cifar100": "resnet18",
    "split-tiny-imagenet": "resnet18",
}
_DEFAULT_NET = "mlp"
_HAVE_DEFAULTS = {"net", "lr_drops", "tasks", "class_order", "limit", "task_free"}


class SettingsError(RemaskError, ValueError):
    """Settings that cannot be run; the message says which, and what is allowed."""


def trial_configs(
    *,
    benchmark: str,
    method: str,
    masks: Sequence[float | None] | None = None,
    buffer: int | None = None,
    seeds: Sequence[int],
    overrides: Mapping[str, Any] | None = None,
) -> list[TrialConfig]:
    """One config a (mask, seed), with published settings where `overrides` says nothing.

    `masks=None` means the mask that the method's name implies: none for `er`, -inf for `mser`.
    """
    if benchmark not in BENCHMARKS:
        raise UnknownNameError(unknown("benchmark", benchmark, BENCHMARKS))
    name, masks = _split_masked_name(method, masks)
    kind = find_method(name)
    if kind.unmaskable and any(mask is not None for mask in masks):
        raise SettingsError(f"{method} cannot wear a mask: {kind.unmaskable}")
    capacity = _buffer_of(kind, benchmark, buffer)
    settings = _settings_of(kind, benchmark, capacity, overrides or {})
    return [
        _validated(
            {
                "benchmark": benchmark,
                "method": name,
                "mask": mask,
                "buffer": capacity,
                "seed": seed,
                **settings,
            }
        )
        for mask in masks
        for seed in seeds
    ]


def _split_masked_name(
    method: str, masks: Sequence[float | None] | None
) -> tuple[str, Sequence[float | None]]:
    if method not in MASKED_NAMES:
        return method, [None] if masks is None else masks
    name, implied = MASKED_NAMES[method]
    masks = [implied] if masks is None else masks
    if any(mask is None for mask in masks):
        raise SettingsError(
            f"{method} is {name} with a mask; for no mask, say --method {name} --mask none"
        )
    return name, masks


def _buffer_of(kind: type[Method], benchmark: str, buffer: int | None) -> int:
    if kind.draws == 0:
        if buffer:
            raise SettingsError(f"{kind.title} keeps no memory; leave the buffer out, or say 0")
        return 0
    if buffer is None:
        return _BUFFERS.get(benchmark, _DEFAULT_BUFFER)
    if buffer < 1:
        raise SettingsError(f"{kind.title} replays from memory: the buffer must be at least 1")
    return buffer


def _settings_of(
    kind: type[Method], benchmark: str, buffer: int, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Published settings, then overrides; what the method does not use stays out of the config."""
    used = {"lr", "batch", "epochs", *kind.weights, *_HAVE_DEFAULTS}
    if kind.draws:
        used.add("replay_batch")
    for name in overrides:
        if name not in TrialConfig.model_fields:
            hint = nearest(name, TrialConfig.model_fields)
            raise SettingsError(
                f"there is no setting {name!r}" + (f"; did you mean {hint!r}?" if hint else "")
            )
        if name not in used:
            raise SettingsError(f"{kind.title} has no setting {name!r}; it has {sorted(used)}")
    published = published_settings(benchmark, kind.name, buffer)
    settings: dict[str, Any] = {"net": _NETS.get(benchmark, _DEFAULT_NET)}
    for name in sorted(used - _HAVE_DEFAULTS):
        if name not in overrides and published is None:
            option = name.replace("_", "-")
            raise SettingsError(
                f"nothing is published for {kind.title} on {benchmark}: say --{option}"
            )
        if published is not None:
            settings[name] = getattr(published, name)
    if published is not None and "epochs" not in overrides and kind.learns == "tasks":
        settings["lr_drops"] = published.lr_drops  # for tasks of so many epochs, and no others
    return {**settings, **overrides}


def _validated(values: Mapping[str, Any]) -> TrialConfig:
    try:
        return TrialConfig.model_validate(values)
    except ValidationError as error:
        raise SettingsError(describe(error)) from None


def describe(error: ValidationError) -> str:
    """A validation error for people: the field, the value, and what is allowed."""
    problems = []
    for problem in error.errors():
        field = ".".join(map(str, problem["loc"])) or "the settings"
        allowed = problem["msg"].removeprefix("Value error, ")
        problems.append(f"{field} = {problem['input']!r}: {allowed}")
    return "; ".join(problems)
