"""From settings, given in Python, on the command line or in a file, to the configs of trials.

Settings that are not given are the published ones.
"""

import itertools
import math
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from torch import nn

from remask.config import (
    COMMON_WEIGHTS,
    CONDITIONS,
    IDENTITY,
    Mask,
    MaskValue,
    TrialConfig,
)
from remask.data.benchmark import Benchmark, load_benchmark, same_benchmark, save_benchmark
from remask.data.registry import BENCHMARKS, check_name
from remask.engine.validation import check_method_settings
from remask.errors import SettingsError, describe_errors, did_you_mean
from remask.files import AnyPath, read_limited
from remask.methods import MASKED_NAMES, METHODS, Method, find_method
from remask.nets.builders import NETS
from remask.own_code import check_trusted, import_own, names_own_code
from remask.papers.published import published_settings

_MOST_TRIALS = 100_000
_LARGEST_FILE = 1_000_000  # bytes
LISTS = (list, tuple, range)


def configs_from(
    given: Mapping[str, Any], *, file: AnyPath | None = None, own_code: bool = False
) -> list[TrialConfig]:
    """The trials of every combination of benchmark, method, mask, buffer and weights.

    Settings in `given` override those in the TOML `file`. Code that only the file names is imported
    only with `own_code`. Raises SettingsError.
    """
    given = with_names(given)
    if file is None:
        return combine(given)
    asked = {**read_config(file), **given}
    if not own_code:
        check_trusted(names_in(asked), trusted=names_in(given))
    return combine(asked)


def several(value: object) -> list[str]:
    """The values of a list, or of a text such as `a,b`, as strings without duplicates."""
    parts = value if isinstance(value, LISTS) else str(value).split(",")
    texts = [str(part).strip() for part in parts]
    if not texts or not all(texts):
        raise SettingsError(f"{value!r} is not a comma-separated list of values")
    return list(dict.fromkeys(texts))


def read_config(path: AnyPath) -> dict[str, Any]:
    """The settings in a TOML file."""
    path = Path(path)
    try:
        return tomllib.loads(read_limited(path, _LARGEST_FILE).decode())
    except OSError as error:
        raise SettingsError(f"cannot read the config file {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"the config file {path} is not valid TOML: {error}") from None


def read_weights(given: object) -> dict[str, list[Any]]:
    """The values of weights by name, from a mapping or from texts such as `gamma=0.5,1`."""
    if isinstance(given, Mapping):
        return {n: list(v) if isinstance(v, LISTS) else [v] for n, v in given.items()}
    if not isinstance(given, LISTS):
        raise SettingsError(f"weights = {given!r}: use names with values, as in gamma = 0.5")
    weights = {}
    for text in map(str, given):
        name, separator, values = text.partition("=")
        if not separator:
            raise SettingsError(
                f"invalid weight {text!r}; use NAME=VALUE, or NAME=VALUE,VALUE for several"
            )
        weights[name.strip()] = several(values)
    return weights


class _Asked(BaseModel, extra="allow"):
    """The settings of which several values make several trials; the others are extra."""

    benchmark: Annotated[list[str], BeforeValidator(several)] = ["split-digits"]
    method: Annotated[list[str], BeforeValidator(several)] = ["er"]
    mask: Annotated[list[Mask], BeforeValidator(several)] = []
    buffer: Annotated[list[int], BeforeValidator(several)] = []
    trials: int = Field(10, ge=1)
    seed: int = Field(0, ge=0, lt=2**62)
    weights: Annotated[
        dict[str, Annotated[list[float], Field(min_length=1)]], BeforeValidator(read_weights)
    ] = {}


def combine(given: Mapping[str, Any]) -> list[TrialConfig]:
    """The trials of every combination of these settings; imports what they name."""
    try:
        asked = _Asked.model_validate(given)
    except ValidationError as error:
        raise SettingsError(describe_errors(error, positions=False)) from None
    axes: list[list[Any]] = [asked.benchmark, asked.method, asked.buffer or [None]]
    axes += asked.weights.values()
    masks = asked.mask or None
    check_number(asked.trials * math.prod(map(len, axes)) * len(masks or [None]))
    return [
        config
        for benchmark, method, buffer, *weights in itertools.product(*axes)
        for config in trial_configs(
            benchmark=benchmark,
            method=method,
            masks=masks,
            buffer=buffer,
            seeds=range(asked.seed, asked.seed + asked.trials),
            overrides={
                **(asked.model_extra or {}),
                "weights": dict(zip(asked.weights, weights, strict=True)),
            },
        )
    ]


def check_number(trials: int) -> None:
    """Refuse more trials than a run may have."""
    if trials > _MOST_TRIALS:
        raise SettingsError(
            f"{trials:,} trials; a run has at most {_MOST_TRIALS:,}: divide it into several"
        )


def names_in(settings: Mapping[str, Any]) -> list[str]:
    """The names in these settings that may be of the user's own code."""
    named = (settings[key] for key in ("benchmark", "method", "net") if key in settings)
    return [name for value in named for name in several(value)]


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
    if names_own_code(benchmark):
        import_own("benchmark", benchmark)
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
            problem = error.errors()[0]
            is_list = problem["type"].endswith("_type") and isinstance(problem["input"], LISTS)
            hint = "; for several values, use `sweep`" * is_list
            raise SettingsError(describe_errors(error) + hint) from None
        check_method_settings(first, kind)
        configs.append(first)
        configs += [first.model_copy(update={"seed": seed}) for seed in seeds[1:]]
    return configs


def _settings_of(
    kind: type[Method], benchmark: str, buffer: int, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Published settings, then overrides."""
    _check_known(overrides, _FIELDS, "there is no setting")
    used = _FIELDS.difference(IDENTITY, _unused(kind))
    if unused := [name for name in overrides if name not in used]:
        raise SettingsError(f"{kind.title} has no setting {unused[0]!r}; it has {sorted(used)}")
    needed = ["lr", "batch", "epochs"] if kind.trains_net else []
    if kind.uses_replay_batch():
        needed.append("replay_batch")
    conditions = {name: overrides[name] for name in CONDITIONS if name in overrides}
    published = published_settings(benchmark, kind.name, buffer, **conditions)
    net = _NETS.get(benchmark, _DEFAULT_NET)
    if published is not None and published.net.startswith(net):  # of another size, or head
        net = published.net
    settings: dict[str, Any] = {"net": net}
    if not kind.trains_net:
        settings = {**_ONE_PASS}
    elif published is not None:
        settings |= {name: getattr(published, name) for name in needed}
        if "epochs" not in overrides and kind.learns == "tasks":
            settings["lr_drops"] = published.lr_drops  # for the published number of epochs
    if missing := [name for name in needed if name not in {**settings, **overrides}]:
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


def with_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace objects in settings by their names; other values are unchanged."""
    settings = dict(given)
    for kind in ("benchmark", "method", "net"):
        value = settings.get(kind)
        if isinstance(value, Benchmark):
            name, asked = _of_benchmark(value)
            settings = {**asked, **settings, kind: name}
        elif isinstance(value, list | tuple):
            settings[kind] = [_name(kind, each) for each in value]
        elif value is not None:
            settings[kind] = _name(kind, value)
    return settings


def _name(kind: str, value: Any) -> Any:
    if isinstance(value, Benchmark):
        name, asked = _of_benchmark(value)
        if asked:
            raise SettingsError(
                f"{value.name} was loaded with other tasks: run it alone, not in a list"
            )
        return name
    if isinstance(value, type) and issubclass(value, Method) and value in METHODS.values():
        return value.name
    if known := [name for name, build in NETS.items() if build is value]:
        return known[0]
    if isinstance(value, nn.Module):
        raise SettingsError(
            f"net is a {type(value).__name__}, but each trial builds its own net: give the class, "
            f"or a function (input_shape, num_classes) that returns a net"
        )
    if not callable(value):
        return value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module is None or getattr(sys.modules.get(module), name, None) is not value:
        raise SettingsError(
            f"{kind} = {value!r:.100} cannot be imported by worker processes: define it at the top "
            f"level of a module"
        )
    return f"{module}:{name}"


def _of_benchmark(benchmark: Benchmark) -> tuple[str, dict[str, Any]]:
    """A benchmark's name, and the tasks, order and limit it was loaded with; saves other data."""
    name, asked = benchmark.name, dict(benchmark.asked)
    can_load = name in BENCHMARKS or names_own_code(name)
    if can_load and same_benchmark(benchmark, load_benchmark(name, **asked)):
        return name, asked
    return save_benchmark(benchmark), {}
