"""Whether a config can be run, and says what is really run: its hash names the result for ever."""

from collections.abc import Sequence

import torch

from remask.benchmarks import Benchmark
from remask.classes import ordered_classes
from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.engine.choosing import held_out_places
from remask.errors import RemaskError
from remask.memory import StoredRows
from remask.methods import MASKED_NAMES, METHODS, Method, MethodError, find_method
from remask.nets import NETS, NetBuilder
from remask.own_code import names_own_code
from remask.streams import DataDescription, StreamError, check_share


class ContradictionError(RemaskError, ValueError):
    """A config that says something else than what it is run with; the message says what."""


def check_same_shape(configs: Sequence[TrialConfig]) -> None:
    """Refuse trials that cannot be one stack."""
    if not configs:
        raise ValueError("a stack needs at least one trial")
    if len({config.shape() for config in configs}) > 1:
        raise ValueError("trials of one stack may differ in seed, mask, lr and weights only")


def check_stack(
    configs: Sequence[TrialConfig],
    source: Benchmark | DataDescription,
    method: type[Method] | None,
    build_net: NetBuilder | None,
) -> type[Method]:
    """Refuse what cannot be run, or contradicts itself; returns the method.

    `method` and `build_net` are given if no name leads to them.
    """
    check_same_shape(configs)
    kind = method or find_method(configs[0].method)
    if isinstance(source, DataDescription):
        check_open(kind, source)
    for config in configs:
        check_config(config, kind, source)
    # What the trials of a stack may differ in contradicts nothing.
    check_benchmark(configs[0], source)
    if method is not None:
        check_method(configs[0], method)
    if build_net is not None:
        check_net(configs[0], build_net)
    return kind


def check_open(method: type[Method], data: DataDescription) -> None:
    """Refuse a method that cannot learn tasks as they come; raises MethodError."""
    if method.learns == "union":
        raise MethodError(
            f"{method.title} learns all tasks at once, so it needs a benchmark that has them all"
        )
    needs = method.needs_task_count
    adapts = next(kind for kind in method.__mro__ if "adapt_net" in vars(kind)) is not Method
    if needs is None and adapts:
        needs = "adapts its net to their number"
    if needs and data.num_tasks is None:
        raise MethodError(
            f"{method.title} must know how many tasks will come: it {needs}. "
            f"Say num_tasks=... in the DataDescription, or choose another method."
        )


def check_room(method: type[Method], data: DataDescription, buffer: int, tasks: int) -> None:
    """Refuse another task, after so many, if the method has no room for it: MethodError."""
    most = data.num_tasks
    if method.needs_task_count and most is not None and tasks >= most:
        raise MethodError(
            f"{method.title} was told of {most} tasks, and has room for no more: it "
            f"{method.needs_task_count}"
        )
    least = method.least_buffer(tasks + 1, data.num_classes)
    if method.uses_buffer() and buffer < least:
        raise MethodError(
            f"{method.title} needs a buffer of at least {least} to learn {tasks + 1} tasks; this "
            f"one has {buffer} places"
        )


def check_earlier_samples(
    rows: Sequence[StoredRows],
    source: Benchmark | DataDescription,
    method: type[Method],
    config: TrialConfig,
) -> None:
    """Refuse samples of earlier tasks that could not be used: MethodError, StreamError."""
    if not isinstance(source, DataDescription):
        raise StreamError(
            "earlier_samples are for tasks that come one by one: give a DataDescription"
        )
    if not method.draws:
        raise MethodError(
            f"{method.title} does not draw from a reservoir, so it cannot use earlier_samples: it "
            f"copies the samples that it keeps"
        )
    if config.memory == "merging":
        raise MethodError(
            "a merging memory changes the samples that it keeps, so it cannot leave them where "
            "they are: use another memory, or no earlier_samples"
        )
    for part in rows:
        if part.dtype != source.input_type or part.shape[1:] != source.input_shape:
            raise StreamError(
                f"earlier_samples must be {source.input_type} {list(source.input_shape)} each, got "
                f"{part.dtype} {list(part.shape[1:])}"
            )


def _input_type(data: Benchmark | DataDescription) -> torch.dtype:
    return data.train_inputs.dtype if isinstance(data, Benchmark) else data.input_type


def check_config(
    config: TrialConfig, method: type[Method], benchmark: Benchmark | DataDescription
) -> None:
    """Refuse settings that the method or the data cannot run with: MethodError, SplitError."""
    if isinstance(benchmark, Benchmark):
        labels = benchmark.train_labels
        check_share(labels, config.validation, benchmark.name, benchmark.class_names)
    own, given = set(method.weights) - set(COMMON_WEIGHTS), {name for name, _ in config.weights}
    if given != own:
        raise MethodError(f"the weights of {method.title} are {sorted(own)}, not {sorted(given)}")
    tasks = benchmark.num_tasks or 1  # if nobody knows, it is checked again when one comes
    least = method.least_buffer(tasks, benchmark.num_classes)
    held_out = held_out_places(config.buffer) if config.mask == "auto" else 0
    if method.uses_buffer() and config.buffer - held_out < least:
        raise MethodError(
            f"{method.title} keeps samples: with {tasks} tasks and "
            f"{benchmark.num_classes} classes it needs a buffer of at least {least}, not "
            f"{config.buffer}" + (f", of which mask = auto takes {held_out}" if held_out else "")
        )
    if method.uses_replay_batch() and not config.replay_batch:
        raise MethodError(f"{method.title} replays: it needs a replay batch of at least 1")
    if config.memory != "reservoir" and not method.draws:
        raise MethodError(
            f"{method.title} does not use a reservoir, and only a reservoir can be "
            f"{config.memory}: leave memory out"
        )
    if not method.trains_net and config.epochs != 1:
        raise MethodError(
            f"{method.title} passes over each task once: set epochs to 1, not {config.epochs}"
        )
    if config.memory == "merging" and _input_type(benchmark) == torch.int64:
        raise MethodError("a merging memory averages samples, and int64 inputs have no mean")
    if method.uses_tasks() and config.task_free:
        raise MethodError(
            f"{method.title} acts where a task begins or ends, and a task-free stream does not tell"
        )
    if method.unmaskable and config.mask is not None:
        raise MethodError(f"{method.title} cannot wear a mask: {method.unmaskable}")
    if config.mask == "auto":
        check_auto(config, method)
    if config.mask_stored and not method.stores_logits:
        raise MethodError(f"{method.title} stores no logits that a mask could act on")
    if config.fade and config.mask is None:
        raise MethodError("fade says how a mask fades, but there is no mask: give one, or fade=0")
    if config.fade and not method.uses_buffer():
        raise MethodError(
            f"a mask fades as far as the memory covers the past, and {method.title} keeps none: "
            f"say fade=0"
        )
    if config.fade_power != 1 and not config.fade:
        raise MethodError("fade_power says how a mask fades, but it does not: give fade as well")


def check_auto(config: TrialConfig, method: type[Method]) -> None:
    """Refuse to choose a mask where nothing tells which is best; raises MethodError."""
    if not method.uses_buffer():
        raise MethodError(
            f"mask = auto is chosen by samples that the memory holds out, and {method.title} keeps "
            f"none: give a mask, or none"
        )
    if config.task_free:
        raise MethodError(
            "mask = auto is chosen where a task ends, and a task-free stream does not tell: give "
            "a mask, or none"
        )
    if config.fade or config.fade_power != 1:
        raise MethodError("mask = auto chooses how the mask fades, too: say fade=0, fade_power=1")


def check_benchmark(config: TrialConfig, benchmark: Benchmark | DataDescription) -> None:
    """Refuse a config of other data, tasks, class order or limit than the benchmark has."""
    if config.benchmark != benchmark.name:
        raise ContradictionError(
            f"the config says benchmark={config.benchmark!r}, but the benchmark given is "
            f"{benchmark.name!r}. Say benchmark={benchmark.name!r}, or give "
            f"load_benchmark({config.benchmark!r})."
        )
    if isinstance(benchmark, DataDescription):  # the rest cannot be told before data have come
        return
    remedy = (
        f"Leave it out of the config if the benchmark is meant as it is, or load it with "
        f"load_benchmark({config.benchmark!r}, tasks=..., class_order=..., limit=...)."
    )
    if config.tasks is not None and config.tasks != benchmark.num_tasks:
        raise ContradictionError(
            f"the config says tasks={config.tasks}, but the benchmark given has "
            f"{benchmark.num_tasks} tasks. {remedy}"
        )
    for name, asked in benchmark.asked:
        if getattr(config, name) is None:
            raise ContradictionError(
                f"the benchmark given was loaded with {name}={asked!r}, and the config does not "
                f"say so: its result would be taken for one of {benchmark.name!r} as it is. Say "
                f"{name}={asked!r} in the config."
            )
    if config.class_order is not None:
        order = [label for task in benchmark.tasks for label in task]
        if order != ordered_classes(config.class_order, benchmark.num_classes):
            raise ContradictionError(
                f"the config says class_order={config.class_order!r}, but the classes of the "
                f"benchmark given come in the order {order}. {remedy}"
            )
    if config.limit is not None:
        most = max(
            int(torch.bincount(labels).max())
            for labels in (benchmark.train_labels, benchmark.test_labels)
        )
        if most > config.limit:
            raise ContradictionError(
                f"the config says limit={config.limit}, but the benchmark given has up to {most} "
                f"samples of a class. {remedy}"
            )


def check_method(config: TrialConfig, method: type[Method]) -> None:
    """Refuse the name of another method than the class that was given."""
    name = config.method
    if name == method.name:
        return
    if name in METHODS or name in MASKED_NAMES or _names_another(name, method):
        raise ContradictionError(
            f"the config says method={name!r}, but the class given is {method.__qualname__}. "
            f"Say method={(method.name or method.__name__)!r}, or leave the class out."
        )


def check_net(config: TrialConfig, build: NetBuilder) -> None:
    """Refuse the name of another net than the builder that was given makes."""
    name = config.net
    if NETS.get(name) is build:
        return
    if name.partition(":")[0] in NETS or _names_another(name, build):
        own = getattr(build, "__name__", "my-net")
        default = ", the default" if name == TrialConfig.model_fields["net"].default else ""
        raise ContradictionError(
            f"the config says net={name!r}{default}, but another builder is given, {own}. Give the "
            f"net a name of its own, as in net={own!r}, or leave the builder out."
        )


def _names_another(name: str, given: object) -> bool:
    """Whether this `module:name` cannot be the name of what was given; nothing is imported."""
    own = getattr(given, "__name__", None)
    return names_own_code(name) and own is not None and name.partition(":")[2] != own
