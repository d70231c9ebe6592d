"""The published settings of trials, and what a config changes in them."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from remask.config import COMMON_WEIGHTS, IDENTITY, TrialConfig
from remask.data.registry import check_name
from remask.engine import check_method_settings
from remask.errors import RemaskError, SettingsError, did_you_mean
from remask.methods import MASKED_NAMES, METHODS, Method, find_method
from remask.own_code import names_own_code
from remask.papers.published import published_settings
from remask.setting_types import MaskValue, describe_errors

_FIELDS = frozenset(TrialConfig.model_fields)
_BUFFERS = {"split-digits": 20}
_DEFAULT_BUFFER = 200
_NETS = dict.fromkeys(("split-cifar10", "split-cifar100", "split-tiny-imagenet"), "resnet18")
_DEFAULT_NET = "mlp"
_ONE_PASS = {"net": _DEFAULT_NET, "lr": 1.0, "batch": 500, "epochs": 1}
"""For methods that train no net: one pass in chunks; net and learning rate are unused."""


def trial_configs(
    *,
    benchmark: str,
    method: str,
    masks: Sequence[MaskValue] | None = None,
    buffer: int | None = None,
    seeds: Sequence[int],
    overrides: Mapping[str, Any] | None = None,
) -> list[TrialConfig]:
    """A config per mask and seed, with published settings except for `overrides`.

    `masks=None` is the mask that the method's name implies: none for `er`, -inf for `mser`, 0 for
    `er_ema`. Raises SettingsError.
    """
    check_name(benchmark)
    name, implied = MASKED_NAMES.get(method, (method, None))
    kind = find_method(name)
    if masks is None:
        masks = [kind.usual_mask if implied is None else implied]
    elif implied is not None and None in masks:
        raise SettingsError(f"{method} is {name} with a mask; for none, use the method {name}.")
    if buffer is None:
        buffer = _BUFFERS.get(benchmark, _DEFAULT_BUFFER) if kind.uses_buffer() else 0
    elif buffer and not kind.uses_buffer():
        raise SettingsError(f"{kind.title} has no memory: leave out the buffer.")
    settings = _settings_of(kind, benchmark, buffer, overrides or {})
    common = {"benchmark": benchmark, "method": name, "buffer": buffer, "seed": seeds[0]}
    configs = []
    for mask in masks:
        chosen = {**common, "mask": mask, **_of_mask(mask, masks, kind, settings)}
        try:
            first = TrialConfig.model_validate(chosen)
        except ValidationError as error:
            raise SettingsError(describe_errors(error)) from None
        check_method_settings(first, kind)
        configs.append(first)
        configs += [first.model_copy(update={"seed": seed}) for seed in seeds[1:]]
    return configs


def changed_settings(config: TrialConfig) -> dict[str, Any]:
    """The settings of a trial that differ from the published ones, as JSON values.

    Imports nothing: for the user's own method or benchmark, the settings that differ from a field's
    default.
    """
    implied = config.model_dump(mode="json", exclude={*IDENTITY}, exclude_defaults=True)
    if names_own_code(config.benchmark) or names_own_code(config.method):
        return implied
    try:
        (default,) = trial_configs(
            benchmark=config.benchmark,
            method=config.method,
            masks=[config.mask],
            buffer=config.buffer,
            seeds=[config.seed],
        )
    except RemaskError:  # nothing is published, or a name is unknown
        return implied
    own, usual = (each.model_dump(mode="json", exclude={*IDENTITY}) for each in (config, default))
    return {name: value for name, value in own.items() if value != usual[name]}


def rerun_command(config: TrialConfig, seeds: Sequence[int]) -> str:
    """The `remask run` command that runs the trials of a cell again."""
    words = ["remask", "run", "--benchmark", config.benchmark, "--method", config.method]
    known = METHODS.get(config.method)
    if config.mask is not None:
        words.append(f"--mask={config.mask}".removesuffix(".0"))
    elif known is None or known.usual_mask is not None:  # a custom method may have a usual mask
        words.append("--mask=none")
    if config.buffer:
        words += ["--buffer", str(config.buffer)]
    words += ["--trials", str(len(seeds))]
    if first := min(seeds, default=0):
        words += ["--seed", str(first)]
    for name, value in changed_settings(config).items():
        option = f"--{name.replace('_', '-')}"
        if name == "weights":
            words += [part for own, x in value.items() for part in ("--weight", f"{own}={x}")]
        elif value is True:
            words.append(option)
        elif isinstance(value, list):
            words += [option, ",".join(map(str, value))]
        elif value is not None:
            words += [option, str(value)]
    return shlex.join([*words, "--again"])


def _settings_of(
    kind: type[Method], benchmark: str, buffer: int, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Published settings, then overrides."""
    _check_known(overrides, _FIELDS, "there is no setting")
    used = _FIELDS.difference(IDENTITY, _unused(kind))
    if unused := [name for name in overrides if name not in used]:
        raise SettingsError(f"{kind.title} has no setting {unused[0]!r}; it has {sorted(used)}")
    needed = [*(["lr", "batch", "epochs"] if kind.trains_net else [])]
    needed += ["replay_batch"] if kind.uses_replay_batch() else []
    published = published_settings(benchmark, kind.name, buffer)
    settings: dict[str, Any] = {"net": _NETS.get(benchmark, _DEFAULT_NET)}
    if not kind.trains_net:
        settings = {**_ONE_PASS}
    elif published is not None:
        settings |= {name: getattr(published, name) for name in needed}
        if "epochs" not in overrides and kind.learns == "tasks":
            settings["lr_drops"] = published.lr_drops  # for the published number of epochs
    if missing := [name for name in needed if name not in settings and name not in overrides]:
        raise SettingsError(
            f"nothing is published for {kind.title} on {benchmark}: set {', '.join(missing)}"
        )
    weights = dict(kind.weights)
    if published is not None:
        weights |= {name: x for name, x in published.weights.items() if name in weights}
    settings |= {name: weights.pop(name) for name in COMMON_WEIGHTS if name in weights}
    given = overrides.get("weights", {})
    _check_known(given, weights, f"{kind.title} has no weight")
    return {**settings, **overrides, "weights": {**weights, **given}}


def _unused(kind: type[Method]) -> set[str]:
    """The optional settings that the method does not use."""
    unused = {name for name in COMMON_WEIGHTS if name not in kind.weights}
    if not kind.uses_replay_batch():
        unused.add("replay_batch")
    if kind.unmaskable:
        unused.add("positive_mask")
    if kind.unmaskable or not kind.uses_buffer():
        unused |= {"fade", "fade_power"}
    if kind.unmaskable or not kind.stores_logits:
        unused.add("mask_stored")
    if not kind.trains_net:
        unused |= {"lr", "net", "lr_drops", "precision"}
    return unused


def _of_mask(
    mask: MaskValue, masks: Sequence[MaskValue], kind: type[Method], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings for one of several masks, without those that only apply to other masks."""
    numbers = [each for each in masks if isinstance(each, float)]
    dropped = set()
    if isinstance(mask, float):
        settings = {"fade": kind.usual_fade, **settings}
    elif numbers:
        dropped = {"fade", "fade_power", "mask_stored"}
    above = [each for each in numbers if each > 0]
    if above and mask not in above:
        dropped.add("positive_mask")
    return {name: value for name, value in settings.items() if name not in dropped}


def _check_known(given: Iterable[str], known: Iterable[str], refusal: str) -> None:
    for name in given:
        if name not in known:
            raise SettingsError(f"{refusal} {name!r}{did_you_mean(name, known)}")
