"""A replay memory for anyone's training loop."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.errors import RemaskError
from remask.memory.balanced import ClassBalance
from remask.memory.merging import SPARSE, Places, merge
from remask.memory.reservoir import Integers, offer_slots
from remask.randomness import generator
from remask.setting_types import MemoryPolicy

Values = Tensor | NDArray[Any] | Sequence[Any]
Inputs = Tensor | dict[str, Tensor]
"""[n, *shape], or several such tensors by name, as tokenisers return them."""

_POLICIES = get_args(MemoryPolicy)
_PART = "inputs/"
"""How the inputs that have names are called in a state."""
_TENSORS = ("inputs", "labels", "classes", "offered", "counters", "made_with")


class ReplayMemoryError(RemaskError, ValueError):
    """Something that a replay memory cannot do; the message says what, and nothing has changed."""


class ReplayBatch(NamedTuple):
    """Samples that were drawn from a memory."""

    inputs: Any
    """[n, *shape], as they were added: a tensor, or a dict of tensors (`Inputs`)."""
    labels: Tensor
    """int64 [n]."""
    logits: Tensor | None
    """[n, K], what was added with them; None if that was nothing."""


class ReplayMemory:
    """Up to `capacity` samples of everything that was added, to be replayed.

        memory = ReplayMemory(500, policy="balanced")
        for x, y in stream:
            replayed = memory.draw(len(x)) if len(memory) else None
            ...  # a step on both
            memory.add(x, y)

    With the policy "reservoir" they are a uniform sample of all that came. With "balanced", every
    class keeps as many samples as any other, or all that it had: no class vanishes, however rare.
    "merging" is a reservoir whose samples become means: once it has room for less than one sample
    in sixteen, those that it does not keep are merged, each into the nearest of its class.

    The same calls with the same seed keep and draw the same samples, also after a restore.

    The samples live on `device`, or where those are that are added first. What is added or drawn on
    another device is copied there.
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
            raise ReplayMemoryError(f"a memory has room for at least 1 sample, not {capacity}")
        if policy not in _POLICIES:
            raise ReplayMemoryError(f"the policy is one of {', '.join(_POLICIES)}, not {policy!r}")
        self.capacity, self.policy, self.seed = capacity, policy, seed
        self._device = None if device is None else torch.device(device)
        self._samples: ReplayBatch | None = None  # of all slots; there from the first add on
        self._counts: Tensor | None = None  # with them, in a memory that merges
        self._filled = self._seen = self._adds = self._draws = 0
        self._classes: dict[int, int] = {}  # label -> its number, in the order in which they came
        self._balance = ClassBalance(np.full(capacity, -1), np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return self._filled

    @torch.no_grad()
    def add(
        self, x: Values | Mapping[str, Values], y: Values, logits: Tensor | None = None
    ) -> None:
        """Offer samples x [B, *shape] with labels y [B], and perhaps the network's logits [B, K].

        `x` may be a dict of tensors [B, *shape], such as `input_ids` and `attention_mask`; all
        batches then have the same names, and `draw` returns a dict.
        The first samples say which type and shape all have, and whether logits come with them. The
        logits may get wider, when a head has grown: those of before are 0 for the new classes.
        Raises ReplayMemoryError if samples do not fit.
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
        """Draw n different samples at random, or all if there are fewer.

        They are copies. Raises ReplayMemoryError if the memory is empty: check `len(memory)` first.
        """
        if self._samples is None or not self._filled:
            raise ReplayMemoryError("the memory is empty: add samples before you draw")
        if n < 1:
            raise ReplayMemoryError(f"at least 1 sample can be drawn, not {n}")
        random = generator(self.seed, "draw", self._draws)
        self._draws += 1
        chosen = random.choice(self._filled, min(n, self._filled), replace=False)
        slots = torch.from_numpy(chosen).to(self._samples.labels.device)
        home = self._samples.labels.device if device is None else device
        return _each(self._samples, lambda part: part.index_select(0, slots).to(home))

    def class_counts(self) -> dict[int, int]:
        """How many samples of each class are in memory, by label."""
        if self._samples is None:
            return {}
        return dict(Counter(self._samples.labels[: self._filled].tolist()))

    def state_dict(self) -> dict[str, Tensor]:
        """All that a memory is, as tensors: for `torch.save`, safetensors, or another memory."""
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
        """Become the memory that was saved, which must have been made with the same arguments."""
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
        """Have places for samples like these, with logits as wide."""
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
        """Copy the samples [B] to their slots [B]; of several in one slot, the last stays."""
        assert self._samples is not None  # there is room
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
        """Merge the samples that get no slot, if this memory does."""
        if self._samples is None or self._counts is None:
            return
        home = self._counts.device
        own = torch.from_numpy(np.flatnonzero(slots >= 0)).to(home)
        new = _each(batch, lambda part: part.detach().to(home).unsqueeze(0))
        inputs, labels, logits = self._samples
        assert isinstance(inputs, Tensor)  # a memory that merges takes no dicts
        assert isinstance(new.inputs, Tensor)
        places = Places(inputs, labels, logits, self._counts)
        merge(places, new.inputs, new.labels, new.logits, kept=own, number=self._adds)

    def _room_for(self, part: Tensor) -> Tensor:
        return part.new_zeros((self.capacity, *part.shape[1:]))

    def _checked(self, x: Inputs, y: Tensor, logits: Tensor | None) -> ReplayBatch:
        """Samples that fit what is there; labels as int64."""
        for part in _parts(x):
            if part.ndim < 1 or y.shape != part.shape[:1]:
                raise ReplayMemoryError(
                    f"a batch has one label for each sample; got x {_shapes(x)}, y {list(y.shape)}"
                )
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise ReplayMemoryError(f"labels are integers, not {y.dtype}")
        if logits is not None and (logits.ndim != 2 or len(logits) != len(y)):
            raise ReplayMemoryError(
                f"logits are [B, K], B = {len(y)} here; got {list(logits.shape)}"
            )
        batch = ReplayBatch(x, y.to(torch.int64), logits)
        if self._samples is None:
            if self.policy == "merging" and not isinstance(x, Tensor):
                raise ReplayMemoryError("a memory that merges holds one tensor, not a dict")
            if self.policy == "merging" and isinstance(x, Tensor) and not _can_be_merged(x):
                raise ReplayMemoryError(
                    f"a memory that merges holds floats or bytes, not {x.dtype}"
                )
            return batch
        inputs, _, stored = self._samples
        if _samples_in(x) != _samples_in(inputs):
            raise ReplayMemoryError(
                f"the memory holds samples {_samples_in(inputs)}, and these are {_samples_in(x)}"
            )
        if (logits is None) != (stored is None):
            raise ReplayMemoryError(
                "logits come with all samples of a memory or with none; the first ones were added "
                f"{'without' if stored is None else 'with'} them"
            )
        if logits is not None and stored is not None:
            if logits.dtype != stored.dtype:
                raise ReplayMemoryError(f"the logits were {stored.dtype}, and are {logits.dtype}")
            if logits.shape[1] < stored.shape[1]:
                raise ReplayMemoryError(
                    f"logits may get wider, but not narrower: they had {stored.shape[1]} classes, "
                    f"and now have {logits.shape[1]}"
                )
        return batch

    def _check_state(self, state: Mapping[str, Tensor]) -> tuple[int, int, int, int]:
        """What a state counts, if it is one that this memory can have."""
        filled = len(state["labels"]) if "labels" in state else 0
        needed = {*_TENSORS} if filled else {*_TENSORS} - {"inputs", "labels"}
        if filled and self.policy == "merging":
            needed |= {"counts"}
        found = {"inputs" if name.startswith(_PART) else name for name in state} - {"logits"}
        if found != needed:
            raise ReplayMemoryError(f"not the state of a replay memory: it has {sorted(state)}")
        own = [self.capacity, _POLICIES.index(self.policy), self.seed]
        made = state["made_with"].tolist()
        if made != own:
            raise ReplayMemoryError(
                f"the state is of a memory made with capacity, policy, seed = {made}, and this one "
                f"with {own} (policies: 0 reservoir, 1 balanced, 2 merging)"
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
            raise ReplayMemoryError("the state contradicts itself: its tensors do not fit together")
        return seen, adds, draws, filled


def _as_inputs(x: Values | Mapping[str, Values]) -> Inputs:
    if not isinstance(x, Mapping):
        return _as_tensor("x", x)
    if not x or not all(isinstance(name, str) for name in x):
        raise ReplayMemoryError("x is a dict without tensors, or its keys are not strings")
    return {name: _as_tensor(f"x[{name!r}]", part) for name, part in x.items()}


def _as_tensor(name: str, values: Values) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        kind = type(values).__name__
        raise ReplayMemoryError(
            f"{name} cannot be made a tensor: it is a {kind} ({error}). Give tensors or arrays of "
            f"numbers; texts have to be tokenised, and labels numbered, first"
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
    """The tensors of a batch by the names that they have in a state."""
    if batch is None:
        return {}
    inputs = batch.inputs
    named = {f"{_PART}{n}": t for n, t in inputs.items()} if isinstance(inputs, dict) else {}
    if isinstance(inputs, Tensor):
        named["inputs"] = inputs
    named["labels"] = batch.labels
    return named if batch.logits is None else {**named, "logits": batch.logits}


def _samples_in(inputs: Inputs) -> str:
    """The type and shape of one sample, for messages and to compare."""
    if isinstance(inputs, dict):
        return ", ".join(f"{name}: {_samples_in(inputs[name])}" for name in sorted(inputs))
    return f"{inputs.dtype} {list(inputs.shape[1:])}"


def _shapes(inputs: Inputs) -> str:
    if isinstance(inputs, dict):
        return ", ".join(f"{name}: {list(part.shape)}" for name, part in inputs.items())
    return str(list(inputs.shape))


def _can_be_merged(x: Tensor) -> bool:
    return x.is_floating_point() or x.dtype == torch.uint8
