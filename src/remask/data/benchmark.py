"""A benchmark: inputs, labels, and the tasks in which their classes are learnt."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from remask.data.classes import (
    SplitError,
    Tasks,
    check_class_names,
    check_tasks,
    ordered_classes,
    split_again,
    split_classes,
)
from remask.data.dataset import data_folder, load
from remask.data.domains import blur as blurred
from remask.data.domains import in_domains
from remask.data.registry import BENCHMARKS, BenchmarkInfo, check_name
from remask.data.tasks import DataDescription, PreprocessedData
from remask.errors import DataError, RemaskError
from remask.files import AnyPath, make_folder, open_regular, write_atomically
from remask.own_code import OwnCodeError, failure_of, import_own


# eq=False: comparing tensors field by field has no single truth value, so identity is equality.
@dataclass(frozen=True, eq=False)
class Benchmark(PreprocessedData):
    """Labelled inputs whose classes arrive in tasks.

    Inputs are uint8 or float32 and keep their type in memory and in checkpoints. An input has any
    shape: `[1, 28, 28]` for grey images, `[3, 32, 32]` for colour, `[512]` for embeddings.
    """

    name: str
    train_inputs: torch.Tensor = field(repr=False)
    """uint8 or float32 [N, *input_shape]"""
    train_labels: torch.Tensor = field(repr=False)
    """int64 [N], each in 0..K-1"""
    test_inputs: torch.Tensor = field(repr=False)
    """[N_test, *input_shape], of the same type"""
    test_labels: torch.Tensor = field(repr=False)
    """int64 [N_test], each in 0..K-1"""
    tasks: Tasks
    """The class ids of each task, in order of learning; tasks may differ in size."""
    scale: float = field(kw_only=True)
    """Factor of the inputs; bytes must end up in [0, 1]."""
    train_tasks: torch.Tensor | None = field(default=None, repr=False)
    """int64 [N], the task of each train sample, if tasks share classes; None: that of its class."""
    test_tasks: torch.Tensor | None = field(default=None, repr=False)
    """int64 [N_test], given with `train_tasks` or not at all."""
    asked: tuple[tuple[str, Any], ...] = ()
    """The arguments tasks, class_order, limit and blur of `load_benchmark`, if given."""

    def __post_init__(self) -> None:
        """Check the data."""
        check_tasks(self.tasks, shared=self.train_tasks is not None)
        # A label may be a NumPy or torch integer, which JSON cannot store.
        tasks = tuple(tuple(int(label) for label in task) for task in self.tasks)
        object.__setattr__(self, "tasks", tasks)
        names = tuple(self.class_names) or tuple(map(str, range(self.num_classes)))
        object.__setattr__(self, "class_names", names)
        check_class_names(names, self.num_classes)
        if self.train_inputs.ndim < 2 or self.train_inputs.dtype == torch.int64:
            raise ValueError(
                f"inputs must be uint8 or float32 [N, *shape], got {self.train_inputs.dtype} "
                f"{list(self.train_inputs.shape)}"
            )
        if (self.train_tasks is None) != (self.test_tasks is None):
            raise ValueError("give both train_tasks and test_tasks, or neither")
        data = DataDescription.of(self)
        data.check("train", self.train_inputs, self.train_labels)
        data.check("test", self.test_inputs, self.test_labels)
        self._check_part("train", self.train_inputs, self.train_labels, self.train_tasks)
        self._check_part("test", self.test_inputs, self.test_labels, self.test_tasks)

    def _check_part(
        self, part: str, inputs: torch.Tensor, labels: torch.Tensor, tasks: torch.Tensor | None
    ) -> None:
        """Check that every class has samples, their range, and the task of each, if given."""
        missing = (torch.bincount(labels, minlength=self.num_classes) == 0).nonzero()
        if len(missing):
            raise ValueError(f"classes without {part} data: {missing.flatten().tolist()}")
        largest = 0 if inputs.is_floating_point() else int(inputs.max())
        if largest * self.scale > 1 + 1e-6:  # 255 * (1 / 255) may round up
            raise ValueError(
                f"scale must bring bytes into [0, 1]; {self.scale} takes the largest, {largest}, "
                f"to {largest * self.scale}"
            )
        if tasks is None:
            return
        if tasks.shape != labels.shape or tasks.dtype != torch.int64:
            raise ValueError(f"{part}_tasks must be int64, one for each of {len(labels)} samples")
        for number, task in enumerate(self.tasks):
            found = labels[tasks == number].unique().tolist()  # type: ignore[no-untyped-call]
            if not found or {*found} - {*task} or (part == "train" and {*task} - {*found}):
                raise ValueError(f"task {number} has {part} data of {found}, not of {list(task)}")
        if int(tasks.min()) < 0 or int(tasks.max()) >= self.num_tasks:
            raise ValueError(f"{part}_tasks must be in 0..{self.num_tasks - 1}")

    @property
    def num_classes(self) -> int:
        """K, the number of classes of all tasks together."""
        return len({label for task in self.tasks for label in task})

    @property
    def num_tasks(self) -> int:
        """T, the number of tasks."""
        return len(self.tasks)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without the batch axis."""
        return tuple(self.train_inputs.shape[1:])

    def train_indices(self, task: int) -> torch.Tensor:
        """Return the rows of the train set that belong to the task, ascending; int64 [N_task]."""
        return self.rows_of(task, self.keys("train"))

    def test_indices(self, task: int) -> torch.Tensor:
        """Return the rows of the test set that belong to the task, ascending; int64 [N_task]."""
        return self.rows_of(task, self.keys("test"))

    def active(self, task: int) -> torch.Tensor:
        """Return the mask of the classes of the task; bool [K]."""
        # A negative index would silently select another task.
        if not 0 <= task < self.num_tasks:
            raise IndexError(f"{self.name} has tasks 0..{self.num_tasks - 1}, not {task}")
        mask = torch.zeros(self.num_classes, dtype=torch.bool)
        mask[list(self.tasks[task])] = True
        return mask

    def keys(self, part: str) -> torch.Tensor:
        """Return a number per sample: its label, plus K times its task if tasks share classes."""
        labels: torch.Tensor = getattr(self, f"{part}_labels")
        assigned: torch.Tensor | None = getattr(self, f"{part}_tasks")
        return labels if assigned is None else labels + self.num_classes * assigned

    def rows_of(self, task: int, keys: torch.Tensor) -> torch.Tensor:
        """Return the rows that belong to the task among samples with these keys, ascending."""
        active = self.active(task).to(keys.device)
        if self.train_tasks is not None:
            return (keys // self.num_classes == task).nonzero().squeeze(-1)
        return active[keys].nonzero().squeeze(-1)


def resplit(
    benchmark: Benchmark,
    *,
    tasks: int | None = None,
    class_order: Sequence[int] | int | None = None,
    limit: int | None = None,
    blur: float | None = None,
) -> Benchmark:
    """Split the classes into other tasks, and keep the first `limit` inputs of each class.

    Labels do not change; only `Benchmark.tasks` follows the order. Without `tasks` the tasks keep
    their sizes. `blur` moves a share of the train samples to neighbouring tasks. Raises SplitError.
    """
    if not (class_order is None or isinstance(class_order, int)):
        class_order = tuple(ordered_classes(class_order, benchmark.num_classes))
    options = {"tasks": tasks, "class_order": class_order, "limit": limit, "blur": blur or None}
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return benchmark
    if benchmark.train_tasks is not None:
        raise SplitError(
            f"the tasks of {benchmark.name} share classes, so {', '.join(given)} cannot be changed"
        )
    changes: dict[str, Any] = {
        "tasks": split_again(benchmark.tasks, num_tasks=tasks, class_order=class_order),
        "asked": tuple({**dict(benchmark.asked), **given}.items()),
    }
    if limit is not None:
        if limit < 1:
            raise SplitError(f"limit must be at least 1 per class, got {limit}")
        for part in ("train", "test"):
            labels = getattr(benchmark, f"{part}_labels")
            rows = first_of_each_class(labels, limit)
            changes[f"{part}_inputs"] = getattr(benchmark, f"{part}_inputs")[rows]
            changes[f"{part}_labels"] = labels[rows]
    split = replace(benchmark, **changes)
    if not blur:
        return split
    train_tasks, classes = blurred(split.train_labels, split.tasks, blur)
    own = torch.stack(
        [split.active(number)[split.test_labels] for number in range(split.num_tasks)]
    )
    test_tasks = own.long().argmax(0)
    return replace(split, tasks=classes, train_tasks=train_tasks, test_tasks=test_tasks)


def first_of_each_class(labels: torch.Tensor, n: int) -> torch.Tensor:
    """Return the first n rows of each class, or all it has, ascending; int64 [N] -> [rows]."""
    rows = [(labels == label).nonzero().flatten()[:n] for label in range(int(labels.max()) + 1)]
    return torch.cat(rows).sort().values


def load_benchmark(
    name: str,
    *,
    tasks: int | None = None,
    class_order: Sequence[int] | int | None = None,
    limit: int | None = None,
    blur: float | None = None,
    data: AnyPath | None = None,
) -> Benchmark:
    """Load a benchmark by name, fetching its data if needed; `module:function` is your own.

    `tasks` is the number of tasks, of sizes as even as possible, larger ones first. `class_order`
    is the order of the classes, or a seed to draw it from. `limit` keeps the first train and test
    inputs of each class. `blur` moves this share of each class's train samples to the tasks beside
    its own. `data` is a folder or archive with the data, which is copied to the cache. Labels stay
    as in the files. The benchmark has the name that it was loaded by.

    Raises UnknownNameError, SplitError for invalid tasks, DataError if the data is damaged or out
    of reach, and OwnCodeError.
    """
    check_name(name)
    benchmark = _load(BENCHMARKS[name], data) if name in BENCHMARKS else _own_benchmark(name)
    return resplit(benchmark, tasks=tasks, class_order=class_order, limit=limit, blur=blur)


def _load(info: BenchmarkInfo, data: AnyPath | None) -> Benchmark:
    arrays = load(info.dataset, data)
    classes = len(info.dataset.class_names)
    shared = info.kind != "split"
    tasks = (tuple(range(classes)),) * info.num_tasks
    tasks = tasks if shared else split_classes(classes, info.num_tasks)
    tensors: dict[str, Any] = {}
    for part in ("train", "test"):
        inputs = torch.from_numpy(arrays[f"{part}_images"])
        if shared:
            inputs, tensors[f"{part}_tasks"] = in_domains(inputs, info.kind, info.num_tasks)
        tensors[f"{part}_inputs"] = inputs
        tensors[f"{part}_labels"] = torch.from_numpy(arrays[f"{part}_labels"].astype(np.int64))
    return Benchmark(
        name=info.name,
        scale=info.scale,
        mean=info.mean_and_std[0],
        std=info.mean_and_std[1],
        crop_padding=4 if info.augment else 0,
        flip=info.augment,
        tasks=tasks,
        class_names=info.dataset.class_names,
        **tensors,
    )


def _own_benchmark(name: str) -> Benchmark:
    make = import_own("benchmark", name)
    try:
        benchmark = make()
    except RemaskError:
        raise
    except Exception as error:
        raise failure_of(f"{name}()", error) from error
    if not isinstance(benchmark, Benchmark):
        raise OwnCodeError(f"{name}() must return a remask.Benchmark, not {benchmark!r:.100}")
    # The name in a trial's config, not the one that the function set.
    return replace(benchmark, name=name, asked=())


_TENSORS = (
    *("train_inputs", "train_labels", "test_inputs", "test_labels"),
    *("train_tasks", "test_tasks"),  # or None
)
_SETTINGS = ("tasks", "scale", "mean", "std", "crop_padding", "flip", "class_names")
_SAVED_NAME = re.compile(r"[a-z]\w*_[0-9a-f]{16}")
_DIGITS = 16


def save_benchmark(benchmark: Benchmark) -> str:
    """Store a benchmark, and return the name to load it by: `module:name`."""
    data = safetensors.torch.save(
        {
            name: getattr(benchmark, name).cpu().contiguous()
            for name in _TENSORS
            if getattr(benchmark, name) is not None
        },
        {"remask": json.dumps({name: getattr(benchmark, name) for name in _SETTINGS})},
    )
    words = re.sub(r"\W+", "_", benchmark.name.casefold()).strip("_")[:60]
    digest = hashlib.sha256(data).hexdigest()[:_DIGITS]
    name = f"{words if words[:1].isalpha() else f'own_{words}'}_{digest}"
    if not _saved_path(name).exists():
        make_folder(_saved_path(name).parent)
        write_atomically(_saved_path(name), data, private=True)
    return f"{__name__}:{name}"


def same_benchmark(one: Benchmark, other: Benchmark) -> bool:
    """Whether two benchmarks have the same samples, tasks and preprocessing."""
    if any(getattr(one, name) != getattr(other, name) for name in _SETTINGS):
        return False
    pairs = [(getattr(one, name), getattr(other, name)) for name in _TENSORS]
    return all(
        first is second or (None not in (first, second) and torch.equal(first, second))
        for first, second in pairs
    )


def _saved_path(name: str) -> Path:
    return data_folder() / "own" / f"{name}.safetensors"


def _load_saved(name: str) -> Benchmark:
    path = _saved_path(name)
    try:
        with open_regular(path) as stream:
            data = stream.read()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}. Pass the benchmark to remask.run again."
        ) from error
    if hashlib.sha256(data).hexdigest()[:_DIGITS] != name[-_DIGITS:]:
        raise DataError(f"{path} is damaged. Remove it, and pass the benchmark to remask.run again")
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    settings = json.loads(header["__metadata__"]["remask"])
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()
    }
    return Benchmark(name=name, **{**fields, **safetensors.torch.load(data)})


def __getattr__(name: str) -> Callable[[], Benchmark]:
    if _SAVED_NAME.fullmatch(name) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(_load_saved, name)
