"""A replay memory for any training loop."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.errors import RemaskError
from remask.memory.policies import SPARSE, ClassBalance, Integers, Places, merge
from remask.memory.reservoir import offer_slots
from remask.randomness import generator
from remask.setting_types import MemoryPolicy

Values = Tensor | NDArray[Any] | Sequence[Any]
Inputs = Tensor | dict[str, Tensor]
"""[n, *shape], or several such tensors by name, as tokenisers return."""

_POLICIES = get_args(MemoryPolicy)
_PART = "inputs/"
"""The prefix of named inputs in a state."""
_TENSORS = ("inputs", "labels", "classes", "offered", "counters", "made_with")


class ReplayMemoryError(RemaskError, ValueError):
    """Invalid samples or state; the memory is unchanged."""


class ReplayBatch(NamedTuple):
    """Samples drawn from a memory."""

    inputs: Any
    """[n, *shape], as added: a tensor, or a dict of tensors (`Inputs`)."""
    labels: Tensor
    """int64 [n]."""
    logits: Tensor | None
    """[n, K], or None if the samples were added without logits."""


class ReplayMemory:
    """Keeps up to `capacity` of the added samples for replay.

        memory = ReplayMemory(500, policy="balanced")
        for x, y in stream:
            replayed = memory.draw(len(x)) if len(memory) else None
            ...  # a step on both
            memory.add(x, y)

    The policy "reservoir" keeps a uniform sample of everything added. "balanced" keeps the same
    number of samples of every class, or all of a rare one. "merging" is a reservoir that, once it
    holds less than one sample in sixteen, merges the others into the nearest of their class.

    The same calls with the same seed keep and draw the same samples, also after a restore.

    Samples are stored on `device`, by default that of the first samples added.
    """

    def __init__(
        self,
        capacity: int,
        policy: MemoryPolicy = "reservoir",
        seed: int = 0,
        *,
        device: torch.device | str | None = None,
    ) -> None:
        if capacity < 1:
            raise ReplayMemoryError(f"capacity must be at least 1, got {capacity}")
        if policy not in _POLICIES:
            raise ReplayMemoryError(f"policy must be one of {', '.join(_POLICIES)}, got {policy!r}")
        self.capacity, self.policy, self.seed = capacity, policy, seed
        self._device = None if device is None else torch.device(device)
        self._samples: ReplayBatch | None = None  # all slots; None before the first add
        self._counts: Tensor | None = None  # samples merged into each slot
        self._filled = self._seen = self._adds = self._draws = 0
        self._classes: dict[int, int] = {}  # label -> number, in order of arrival
        self._balance = ClassBalance(np.full(capacity, -1), np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return self._filled

    @torch.no_grad()
    def add(
        self, x: Values | Mapping[str, Values], y: Values, logits: Tensor | None = None
    ) -> None:
        """Offer samples x [B, *shape] with labels y [B] and, optionally, logits [B, K].

        `x` may be a dict of tensors [B, *shape], such as `input_ids` and `attention_mask`; `draw`
        then returns a dict. All samples have the type, shape and names of the first ones, and all
        or none have logits. Logits may become wider when a head grows; stored ones are padded with
        0. Raises ReplayMemoryError if samples do not fit.
        """
        batch = self._checked(_as_inputs(x), _as_tensor("y", y), logits)
        random = generator(self.seed, "add", self._adds)
        if self.policy != "balanced":
            slots = offer_slots(random, self._seen, len(batch.labels), self.capacity)
        else:
            slots = self._balanced_slots(random, batch.labels.tolist())
        self._make_room(batch)
        self._seen += len(batch.labels)
        if self._filled == self.capacity and self._seen > SPARSE * self.capacity:
            self._merge(batch, slots)
        self._adds += 1
        self._filled = min(self.capacity, self._seen)
        self._put(batch, slots)

    @torch.no_grad()
    def draw(self, n: int, device: torch.device | str | None = None) -> ReplayBatch:
        """Return copies of n distinct random samples, or of all if there are fewer.

        Raises ReplayMemoryError if the memory is empty: check `len(memory)` first.
        """
        if self._samples is None or not self._filled:
            raise ReplayMemoryError("the memory is empty; add samples first")
        if n < 1:
            raise ReplayMemoryError(f"n must be at least 1, got {n}")
        random = generator(self.seed, "draw", self._draws)
        self._draws += 1
        chosen = random.choice(self._filled, min(n, self._filled), replace=False)
        slots = torch.from_numpy(chosen).to(self._samples.labels.device)
        home = self._samples.labels.device if device is None else device
        return _each(self._samples, lambda part: part.index_select(0, slots).to(home))

    def class_counts(self) -> dict[int, int]:
        """Return the number of samples per label."""
        if self._samples is None:
            return {}
        return dict(Counter(self._samples.labels[: self._filled].tolist()))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state as tensors, for `torch.save` or safetensors."""
        state = {
            "counters": torch.tensor([self._seen, self._adds, self._draws]),
            "made_with": torch.tensor([self.capacity, _POLICIES.index(self.policy), self.seed]),
            "classes": torch.tensor(list(self._classes), dtype=torch.int64),
            "offered": torch.tensor(self._balance.offered, dtype=torch.int64),
        }
        for name, part in _named(self._samples).items():
            state[name] = part[: self._filled].clone()
        if self._counts is not None:
            state["counts"] = self._counts[: self._filled].clone()
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state saved by a memory with the same arguments."""
        seen, adds, draws, filled = self._check_state(state)
        self._seen, self._adds, self._draws, self._filled = seen, adds, draws, filled
        self._samples = self._counts = None
        slots = np.full(self.capacity, -1, dtype=np.int64)
        self._classes = {label: number for number, label in enumerate(state["classes"].tolist())}
        if filled:
            parts = {n.removeprefix(_PART): t for n, t in state.items() if n.startswith(_PART)}
            saved = ReplayBatch(parts or state["inputs"], state["labels"], state.get("logits"))
            self._make_room(saved)
            self._put(saved, np.arange(filled))
            if self._counts is not None:
                self._counts[:filled] = state["counts"].to(self._counts.device)
            if self.policy == "balanced":
                slots[:filled] = [self._classes[label] for label in saved.labels.tolist()]
        self._balance = ClassBalance(slots, state["offered"].cpu().numpy())

    def _balanced_slots(self, random: np.random.Generator, labels: list[int]) -> Integers:
        for label in labels:
            self._classes.setdefault(label, len(self._classes))
        self._balance.grow(len(self._classes))
        numbers = random.random((len(labels), 2)).tolist()
        slots = [
            self._balance.offer(self._classes[label], chance, choice)
            for label, (chance, choice) in zip(labels, numbers, strict=True)
        ]
        return np.array(slots, dtype=np.int64)

    def _make_room(self, batch: ReplayBatch) -> None:
        """Allocate slots for samples like these, with logits as wide."""
        if self._samples is None:
            home = self._device or _parts(batch.inputs)[0].device
            self._samples = _each(batch, lambda part: self._room_for(part).to(home))
            if self.policy == "merging":
                self._counts = torch.ones(self.capacity, dtype=torch.uint8, device=home)
        wide, stored = batch.logits, self._samples.logits
        if wide is not None and stored is not None and wide.shape[1] > stored.shape[1]:
            more = (0, wide.shape[1] - stored.shape[1])
            self._samples = self._samples._replace(logits=torch.nn.functional.pad(stored, more))

    def _put(self, batch: ReplayBatch, slots: Integers) -> None:
        """Copy samples [B] to their slots [B]; the last one in a slot wins."""
        assert self._samples is not None
        last = {slot: place for place, slot in enumerate(slots.tolist()) if slot >= 0}
        target, source = (
            torch.tensor(list(part), dtype=torch.int64) for part in (last.keys(), last.values())
        )
        given_parts = _named(batch)
        for name, stored in _named(self._samples).items():
            if last:
                given = given_parts[name]
                kept = given.detach().index_select(0, source.to(given.device))
                stored.index_copy_(0, target.to(stored.device), kept.to(stored.device))
        if self._counts is not None:
            self._counts.index_fill_(0, target.to(self._counts.device), 1)

    def _merge(self, batch: ReplayBatch, slots: Integers) -> None:
        """Merge the samples without a slot, if the policy is "merging"."""
        if self._samples is None or self._counts is None:
            return
        home = self._counts.device
        own = torch.from_numpy(np.flatnonzero(slots >= 0)).to(home)
        new = _each(batch, lambda part: part.detach().to(home).unsqueeze(0))
        inputs, labels, logits = self._samples
        assert isinstance(inputs, Tensor)
        assert isinstance(new.inputs, Tensor)
        places = Places(inputs, labels, logits, self._counts)
        merge(places, new.inputs, new.labels, new.logits, kept=own, number=self._adds)

    def _room_for(self, part: Tensor) -> Tensor:
        return part.new_zeros((self.capacity, *part.shape[1:]))

    def _checked(self, x: Inputs, y: Tensor, logits: Tensor | None) -> ReplayBatch:
        """Return the batch with int64 labels; raises ReplayMemoryError if it does not fit."""
        for part in _parts(x):
            if part.ndim < 1 or y.shape != part.shape[:1]:
                raise ReplayMemoryError(
                    f"y must have one label per sample; got x {_shapes(x)}, y {list(y.shape)}"
                )
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise ReplayMemoryError(f"labels must be integers, got {y.dtype}")
        if logits is not None and (logits.ndim != 2 or len(logits) != len(y)):
            raise ReplayMemoryError(f"logits must be [{len(y)}, K], got {list(logits.shape)}")
        batch = ReplayBatch(x, y.to(torch.int64), logits)
        if self._samples is None:
            if self.policy == "merging" and not isinstance(x, Tensor):
                raise ReplayMemoryError('policy "merging" needs a tensor x, not a dict')
            if self.policy == "merging" and isinstance(x, Tensor) and not _can_be_merged(x):
                raise ReplayMemoryError(
                    f'policy "merging" needs floating point or uint8 x, got {x.dtype}'
                )
            return batch
        inputs, _, stored = self._samples
        if _samples_in(x) != _samples_in(inputs):
            raise ReplayMemoryError(
                f"the memory holds samples {_samples_in(inputs)}, got {_samples_in(x)}"
            )
        if (logits is None) != (stored is None):
            raise ReplayMemoryError(
                "either all samples have logits or none; the first ones were added "
                f"{'without' if stored is None else 'with'} logits"
            )
        if logits is not None and stored is not None:
            if logits.dtype != stored.dtype:
                raise ReplayMemoryError(f"logits must be {stored.dtype}, got {logits.dtype}")
            if logits.shape[1] < stored.shape[1]:
                raise ReplayMemoryError(
                    f"logits must have at least {stored.shape[1]} classes, as before, got "
                    f"{logits.shape[1]}"
                )
        return batch

    def _check_state(self, state: Mapping[str, Tensor]) -> tuple[int, int, int, int]:
        """Return the counters of a state; raises ReplayMemoryError if it does not fit."""
        filled = len(state["labels"]) if "labels" in state else 0
        needed = {*_TENSORS} if filled else {*_TENSORS} - {"inputs", "labels"}
        if filled and self.policy == "merging":
            needed |= {"counts"}
        found = {"inputs" if name.startswith(_PART) else name for name in state} - {"logits"}
        if found != needed:
            raise ReplayMemoryError(f"not the state of a replay memory: {sorted(state)}")
        own = [self.capacity, _POLICIES.index(self.policy), self.seed]
        made = state["made_with"].tolist()
        if made != own:
            raise ReplayMemoryError(
                f"the state has (capacity, policy, seed) = {made}, this memory {own} (policies: "
                f"0 reservoir, 1 balanced, 2 merging)"
            )
        seen, adds, draws = state["counters"].tolist()
        per_sample = {"inputs", "labels", "logits", "counts"}
        lengths = {len(t) for n, t in state.items() if n in per_sample or n.startswith(_PART)}
        known = {*state["classes"].tolist()}
        fits = (
            filled == min(self.capacity, seen)
            and lengths <= {filled}
            and len(known) == len(state["offered"])
            and (self.policy != "balanced" or not filled or {*state["labels"].tolist()} <= known)
        )
        if not fits:
            raise ReplayMemoryError("the tensors of the state do not fit together")
        return seen, adds, draws, filled


def _as_inputs(x: Values | Mapping[str, Values]) -> Inputs:
    if not isinstance(x, Mapping):
        return _as_tensor("x", x)
    if not x or not all(isinstance(name, str) for name in x):
        raise ReplayMemoryError("x must be a tensor or a non-empty dict with string keys")
    return {name: _as_tensor(f"x[{name!r}]", part) for name, part in x.items()}


def _as_tensor(name: str, values: Values) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        kind = type(values).__name__
        raise ReplayMemoryError(
            f"{name} is a {kind} that torch cannot convert ({error}). Pass tensors or arrays of "
            f"numbers; tokenise texts and number labels first"
        ) from None


def _each(batch: ReplayBatch, change: Callable[[Tensor], Tensor]) -> ReplayBatch:
    logits = None if batch.logits is None else change(batch.logits)
    inputs: Inputs
    if isinstance(batch.inputs, dict):
        inputs = {name: change(part) for name, part in batch.inputs.items()}
    else:
        inputs = change(batch.inputs)
    return ReplayBatch(inputs, change(batch.labels), logits)


def _parts(inputs: Inputs) -> list[Tensor]:
    return list(inputs.values()) if isinstance(inputs, dict) else [inputs]


def _named(batch: ReplayBatch | None) -> dict[str, Tensor]:
    """Return the tensors of a batch by their names in a state."""
    if batch is None:
        return {}
    inputs = batch.inputs
    named = {f"{_PART}{n}": t for n, t in inputs.items()} if isinstance(inputs, dict) else {}
    if isinstance(inputs, Tensor):
        named["inputs"] = inputs
    named["labels"] = batch.labels
    return named if batch.logits is None else {**named, "logits": batch.logits}


def _samples_in(inputs: Inputs) -> str:
    """Return the type and shape of one sample."""
    if isinstance(inputs, dict):
        return ", ".join(f"{name}: {_samples_in(inputs[name])}" for name in sorted(inputs))
    return f"{inputs.dtype} {list(inputs.shape[1:])}"


def _shapes(inputs: Inputs) -> str:
    if isinstance(inputs, dict):
        return ", ".join(f"{name}: {list(part.shape)}" for name, part in inputs.items())
    return str(list(inputs.shape))


def _can_be_merged(x: Tensor) -> bool:
    return x.is_floating_point() or x.dtype == torch.uint8
