"""Validation of a config against the method, net and data that it is run with.

`TrialConfig` validates what depends on the config alone.
"""

import faulthandler
import functools
import os
import signal
from collections.abc import Container, Sequence
from pathlib import Path

import torch

from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.tasks import DataDescription, StreamError, check_share
from remask.engine.choosing import held_out_places
from remask.errors import RemaskError, SettingsError
from remask.machine import fork
from remask.memory import StoredRows
from remask.methods import MASKED_NAMES, METHODS, Method, MethodError, find_method
from remask.nets.builders import NETS, NetBuilder
from remask.own_code import names_own_code

_LIMIT, _WITHOUT_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"
_LONGEST_TRY = 30.0  # seconds; it takes milliseconds


class ContradictionError(SettingsError):
    """A config that differs from what it is run with; the message says where."""


def check_stack(
    configs: Sequence[TrialConfig],
    source: Benchmark | DataDescription,
    method: type[Method] | None,
    build_net: NetBuilder | None,
) -> type[Method]:
    """Refuse trials that cannot be run as one stack; returns the method.

    `method` and `build_net` are given if they cannot be found by name.
    """
    if not configs:
        raise ValueError("a stack needs at least one trial")
    first = configs[0]
    if len({config.shape() for config in configs}) > 1:
        raise ValueError("trials of one stack may differ in seed, mask, lr and weights only")
    kind = method or find_method(first.method)
    if isinstance(source, DataDescription):
        check_open(kind, source)
    for config in configs:
        check_config(config, kind, source)
    _check_benchmark(first, source)
    if method is not None:
        _check_name("method", first.method, method, {**METHODS, **MASKED_NAMES}, method.name)
    if build_net is not None:
        known = next((name for name, own in NETS.items() if own is build_net), None)
        _check_name("net", first.net, build_net, NETS, known)
    return kind


def check_config(
    config: TrialConfig, method: type[Method], benchmark: Benchmark | DataDescription
) -> None:
    """Refuse settings that the method cannot run with on these data. MethodError, SplitError."""
    check_method_settings(config, method)
    if isinstance(benchmark, Benchmark):
        input_type, labels = benchmark.train_inputs.dtype, benchmark.train_labels
        check_share(labels, config.validation, benchmark.name, benchmark.class_names)
    else:
        input_type = benchmark.input_type
    if config.memory == "merging" and input_type == torch.int64:
        raise MethodError("memory='merging' averages samples, which int64 inputs do not allow")
    tasks = benchmark.num_tasks or 1  # if unknown, `check_room` checks again for each task
    least = method.least_buffer(tasks, benchmark.num_classes)
    held_out = held_out_places(config.buffer) if config.mask == "auto" else 0
    if method.uses_buffer() and config.buffer - held_out < least:
        raise MethodError(
            f"{method.title} needs `buffer >= {least + held_out}` for {tasks} tasks and "
            f"{benchmark.num_classes} classes, got {config.buffer}."
        )


def check_method_settings(config: TrialConfig, method: type[Method]) -> None:
    """Refuse settings that the method cannot run with on any data. Raises MethodError."""
    keeps, memory = method.uses_buffer(), config.memory
    own, given = set(method.weights) - set(COMMON_WEIGHTS), {name for name, _ in config.weights}
    for is_wrong, problem in (
        (given != own, f"has the weights {sorted(own)}, got {sorted(given)}"),
        (keeps and not config.buffer, "needs `buffer >= 1`, got 0"),
        (method.uses_replay_batch() and not config.replay_batch, "needs `replay_batch >= 1`"),
        (memory != "reservoir" and not method.draws, f"has no reservoir: leave out {memory=}"),
        (not method.trains_net and config.epochs != 1, "passes over each task once: set epochs=1"),
        (method.uses_tasks and config.task_free, "needs task boundaries: leave out task_free"),
        (
            method.unmaskable and config.mask is not None,
            f"does not support a mask: {method.unmaskable}",
        ),
        (config.mask == "auto" and not keeps, "has no memory to choose a mask with: set a mask"),
        (config.mask_stored and not method.stores_logits, "stores no logits: drop mask_stored"),
        (config.fade and not keeps, "has no memory, which fading depends on: set fade=0"),
    ):
        if is_wrong:
            raise MethodError(f"{method.title} {problem}.")


def check_open(method: type[Method], data: DataDescription) -> None:
    """Refuse a method that cannot learn tasks as they arrive. Raises MethodError."""
    if method.learns == "union":
        raise MethodError(f"{method.title} learns all tasks at once, so it needs a benchmark.")
    needs = method.needs_task_count
    adapts = next(kind for kind in method.__mro__ if "adapt_net" in vars(kind)) is not Method
    if needs is None and adapts:
        needs = "adapts its net to their number"
    if needs and data.num_tasks is None:
        raise MethodError(
            f"{method.title} needs the number of tasks: it {needs}. Set num_tasks in the "
            f"DataDescription, or choose another method."
        )


def check_room(method: type[Method], data: DataDescription, buffer: int, tasks: int) -> None:
    """Refuse another task after `tasks` if the method has no room for it. Raises MethodError."""
    most = data.num_tasks
    if method.needs_task_count and most is not None and tasks >= most:
        raise MethodError(
            f"{method.title} has room for num_tasks={most} tasks: it {method.needs_task_count}."
        )
    least = method.least_buffer(tasks + 1, data.num_classes)
    if method.uses_buffer() and buffer < least:
        raise MethodError(
            f"{method.title} needs `buffer >= {least}` for {tasks + 1} tasks, got {buffer}."
        )


def check_earlier_samples(
    rows: Sequence[StoredRows],
    source: Benchmark | DataDescription,
    method: type[Method],
    config: TrialConfig,
) -> None:
    """Refuse samples of earlier tasks that cannot be used. Raises MethodError, StreamError."""
    if not isinstance(source, DataDescription):
        raise StreamError("earlier_samples need tasks that arrive one by one: a DataDescription")
    if not method.draws:
        raise MethodError(f"{method.title} copies the samples it keeps: leave out earlier_samples.")
    if config.memory == "merging":
        raise MethodError("memory='merging' changes the kept samples: leave out earlier_samples.")
    for part in rows:
        if part.dtype != source.input_type or part.shape[1:] != source.input_shape:
            raise StreamError(
                f"earlier_samples must be {source.input_type} {list(source.input_shape)} each, got "
                f"{part.dtype} {list(part.shape[1:])}"
            )


def _check_benchmark(config: TrialConfig, benchmark: Benchmark | DataDescription) -> None:
    """Refuse a config of other data, tasks, class order, limit or borders than the benchmark's."""
    name = config.benchmark
    if name != benchmark.name:
        raise ContradictionError(
            f"the config has benchmark={name!r}, but the benchmark given is {benchmark.name!r}. "
            f"Use benchmark={benchmark.name!r}, or give load_benchmark({name!r})."
        )
    if isinstance(benchmark, DataDescription):
        return
    asked = dict(benchmark.asked)
    for setting, value in config.split.items():
        if value != asked.get(setting):
            loaded = f"{setting}={asked[setting]!r}" if setting in asked else f"without {setting}"
            raise ContradictionError(
                f"the config has {setting}={value!r}, but the benchmark given was loaded "
                f"{'with ' * (setting in asked)}{loaded}. Use the same value in the config and in "
                f"load_benchmark({name!r}, {setting}=...)."
            )


def _check_name(
    kind: str, name: str, given: object, registered: Container[str], known_as: str | None
) -> None:
    """Refuse a config with the name of another method or net than is given; imports nothing."""
    own = getattr(given, "__name__", None)
    is_registered = name.partition(":")[0] in registered
    names_another = names_own_code(name) and own is not None and name.partition(":")[2] != own
    if name != known_as and (is_registered or names_another):
        raise ContradictionError(
            f"the config has {kind}={name!r}, but {kind}={own or given!r} is given. Use a name of "
            f"its own, such as {kind}={known_as or own or 'mine'!r}, or leave the argument out."
        )


class PrecisionError(RemaskError):
    """The processor does not support the precision."""


@functools.cache
def require_bfloat16() -> None:
    """Disable AMX if it crashes, for layers on the CPU. Raises PrecisionError if it is too late."""
    if not _announces_amx() or _survives():
        return
    os.environ.setdefault(_LIMIT, _WITHOUT_AMX)  # read when torch's layers are first used
    if not _survives():
        raise PrecisionError(
            "bf16 crashes this process: the processor announces AMX instructions and refuses them. "
            f"Set {_LIMIT}={_WITHOUT_AMX} in the environment before Python starts, or use float32"
        )


def _announces_amx() -> bool:
    try:
        return "amx_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return False


def _survives() -> bool:
    """Whether a child of this process completes a small product in bfloat16."""
    child = fork()
    if child == 0:
        try:
            signal.setitimer(signal.ITIMER_REAL, _LONGEST_TRY)  # ends it
            faulthandler.disable()  # suppress the crash dump
            torch.set_num_threads(1)  # the parent's other threads do not exist here
            ones = torch.ones(64, 64, dtype=torch.bfloat16)
            torch.mm(ones, ones)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return not os.WIFSIGNALED(status)
