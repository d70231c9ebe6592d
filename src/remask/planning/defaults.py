"""Defaults: the published settings of a trial, where nothing else is given."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from remask.benchmarks import check_name
from remask.config import COMMON_WEIGHTS, IDENTITY, TrialConfig
from remask.errors import RemaskError, SettingsError
from remask.methods import MASKED_NAMES, Method, find_method
from remask.names import did_you_mean
from remask.own_code import names_own_code
from remask.papers.published import published_settings
from remask.setting_types import MaskValue, read_weights

_LONGEST_VALUE = 200
_BUFFERS = {"split-digits": 20}
_DEFAULT_BUFFER = 200
_NETS = {
    "split-cifar10": "resnet18",
    "split-cifar100": "resnet18",
    "split-tiny-imagenet": "resnet18",
}
_DEFAULT_NET = "mlp"
_TRAINING = ("lr", "batch", "epochs")
_ONE_PASS = {"lr": 1.0, "batch": 500, "epochs": 1}
"""In the configs of methods that train no net: one pass in chunks; the learning rate is unused."""


def trial_configs(
    *,
    benchmark: str,
    method: str,
    masks: Sequence[MaskValue] | None = None,
    buffer: int | None = None,
    seeds: Sequence[int],
    overrides: Mapping[str, Any] | None = None,
) -> list[TrialConfig]:
    """A config per mask and seed, with published settings where `overrides` says nothing.

    `masks=None` means the mask that the method's name implies: none for `er`, -inf for `mser`, 0
    for `er_ema`.
    """
    check_name(benchmark)
    name, masks = _split_masked_name(method, masks)
    kind = find_method(name)
    masks = [kind.usual_mask] if masks is None else masks
    if kind.unmaskable and any(mask is not None for mask in masks):
        raise SettingsError(f"{method} cannot wear a mask: {kind.unmaskable}")
    capacity = _buffer_of(kind, benchmark, buffer)
    settings = _settings_of(kind, benchmark, capacity, overrides or {})
    if settings.get("fade") and not any(isinstance(mask, float) for mask in masks):
        reason = "it is chosen with the mask" if "auto" in masks else "there is no mask"
        raise SettingsError(f"fade says how a mask fades, but {reason}: give one, --mask")
    return [
        _validated(
            {
                "benchmark": benchmark,
                "method": name,
                "mask": mask,
                "buffer": capacity,
                "seed": seed,
                **settings,
                **_about(mask, kind, settings),
            }
        )
        for mask in masks
        for seed in seeds
    ]


def changed_settings(config: TrialConfig) -> dict[str, Any]:
    """The settings of a trial that differ from the published defaults, as JSON values.

    Nothing that it names is imported: for the user's own method or benchmark, these are all
    settings that differ from a field's default.
    """
    own = config.model_dump(mode="json", exclude={*IDENTITY})
    implied = config.model_dump(mode="json", exclude={*IDENTITY}, exclude_defaults=True)
    if names_own_code(config.benchmark) or names_own_code(config.method):
        return implied
    try:
        (default,) = trial_configs(
            benchmark=config.benchmark,
            method=config.method,
            masks=[config.mask],
            buffer=config.buffer or None,
            seeds=[config.seed],
        )
    except RemaskError:  # nothing is published, or a name is no longer known
        return implied
    usual = default.model_dump(mode="json", exclude={*IDENTITY})
    return {name: value for name, value in own.items() if value != usual[name]}


def _about(mask: MaskValue, kind: type[Method], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of masks, as far as they mean something for this one."""
    if not isinstance(mask, float):
        return {
            "fade": 0.0,
            "fade_power": 1.0,
            "mask_stored": mask == "auto" and settings.get("mask_stored", False),
            "positive_mask": False,
        }
    return {
        "fade": settings.get("fade", kind.usual_fade),
        "fade_power": settings.get("fade_power", 1.0),
        "mask_stored": settings.get("mask_stored", False),
        "positive_mask": mask > 0 and settings.get("positive_mask", False),
    }


def _split_masked_name(
    method: str, masks: Sequence[MaskValue] | None
) -> tuple[str, Sequence[MaskValue] | None]:
    if method not in MASKED_NAMES:
        return method, masks
    name, implied = MASKED_NAMES[method]
    masks = [implied] if masks is None else masks
    if any(mask is None for mask in masks):
        raise SettingsError(
            f"{method} is {name} with a mask; for no mask, say --method {name} --mask none"
        )
    return name, masks


def _buffer_of(kind: type[Method], benchmark: str, buffer: int | None) -> int:
    if not kind.uses_buffer():
        if buffer:
            raise SettingsError(f"{kind.title} keeps no memory; leave the buffer out, or say 0")
        return 0
    if buffer is None:
        return _BUFFERS.get(benchmark, _DEFAULT_BUFFER)
    if buffer < 1:
        raise SettingsError(f"{kind.title} keeps samples: the buffer must be at least 1")
    return buffer


def _settings_of(
    kind: type[Method], benchmark: str, buffer: int, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Published settings, then overrides; what the method does not use stays out of the config."""
    needed = [*_TRAINING] if kind.trains_net else []
    needed += ["replay_batch"] if kind.uses_replay_batch() else []
    common = [name for name in COMMON_WEIGHTS if name in kind.weights]
    _check_names(overrides, TrialConfig.model_fields, "there is no setting")
    masking = [name for name, used in _masking(kind).items() if used]
    training = [] if kind.trains_net else ["lr", "net", "lr_drops", "precision"]
    optional = {"replay_batch", *COMMON_WEIGHTS, *_masking(kind), *training}
    unused = optional.difference(needed, common, masking)
    _check_used(kind, overrides, {*TrialConfig.model_fields}.difference(IDENTITY, unused))
    if not kind.trains_net and overrides.get("epochs", 1) != 1:
        raise SettingsError(f"{kind.title} passes over each task once: leave the epochs out")
    published = published_settings(benchmark, kind.name, buffer)
    settings: dict[str, Any] = {"net": _NETS.get(benchmark, _DEFAULT_NET)}
    if not kind.trains_net:
        settings = {"net": _DEFAULT_NET, **_ONE_PASS}
    elif published is not None:
        settings.update({name: getattr(published, name) for name in needed})
        if "epochs" not in overrides and kind.learns == "tasks":
            settings["lr_drops"] = published.lr_drops  # they are meant for this number of epochs
    missing = [name for name in needed if name not in settings and name not in overrides]
    if missing:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise SettingsError(f"nothing is published for {kind.title} on {benchmark}: say {options}")
    weights = {**kind.weights, **(_known_weights(kind, published.weights) if published else {})}
    settings.update({name: weights.pop(name) for name in common})
    given = overrides.get("weights", {})
    if isinstance(given, list | tuple):
        given = read_weights(given)
    if not isinstance(given, Mapping):
        raise SettingsError(f"weights = {given!r}: names with values are needed, as in gamma = 0.5")
    _check_names(given, weights, f"{kind.title} has no weight")
    return {**settings, **overrides, "weights": {**weights, **given}}


def _masking(kind: type[Method]) -> dict[str, bool]:
    """The settings of masks, and whether the method can use each."""
    maskable = not kind.unmaskable
    return {
        "positive_mask": maskable,
        "fade": maskable and kind.uses_buffer(),
        "fade_power": maskable and kind.uses_buffer(),
        "mask_stored": maskable and kind.stores_logits,
    }


def _known_weights(kind: type[Method], weights: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in weights.items() if name in kind.weights}


def _check_names(given: Iterable[str], known: Iterable[str], refusal: str) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            raise SettingsError(f"{refusal} {name!r}{did_you_mean(name, known)}")


def _check_used(kind: type[Method], given: Iterable[str], used: set[str]) -> None:
    for name in given:
        if name not in used:
            raise SettingsError(f"{kind.title} has no setting {name!r}; it has {sorted(used)}")


def _validated(values: Mapping[str, Any]) -> TrialConfig:
    try:
        return TrialConfig.model_validate(values)
    except ValidationError as error:
        raise SettingsError(describe(error)) from None


def _short(value: object) -> str:
    """A value as it is written, if that is short."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print whole numbers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def describe(error: ValidationError) -> str:
    """A validation error for people: the field, the value, and what is allowed."""
    problems = []
    for problem in error.errors():
        field = ".".join(map(str, problem["loc"])) or "the settings"
        allowed = problem["msg"].removeprefix("Value error, ")
        problems.append(f"{field} = {_short(problem['input'])}: {allowed}")
    return "; ".join(problems)
