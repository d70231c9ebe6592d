"""A replay memory for any training loop."""

import operator
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from remask.config import MemoryPolicy
from remask.memory.policies import SPARSE, ClassBalance, Integers, Places, fair_shares, merge
from remask.memory.replay_samples import (
    Parts,
    ReplayBatch,
    ReplayMemoryError,
    Values,
    as_batch,
    check_samples,
    kind_of,
    read_samples,
)
from remask.memory.reservoir import offer_slots
from remask.randomness import generator

_POLICIES = get_args(MemoryPolicy)
_NOT_SAMPLES = {"classes", "offered", "counters", "made_with"}


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
    Iterating yields the stored samples one by one.

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
        if policy not in _POLICIES:
            raise ReplayMemoryError(f"policy must be one of {', '.join(_POLICIES)}, got {policy!r}")
        self.capacity = capacity = _at_least_1("capacity", capacity)
        self.policy, self.seed = policy, seed
        self._device = None if device is None else torch.device(device)
        self._slots: Parts = {}  # all slots; empty before the first add
        self._filled = self._seen = self._adds = self._draws = 0
        self._classes: dict[int, int] = {}  # label -> number, in order of arrival
        self._balance = ClassBalance(np.full(capacity, -1), np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return self._filled

    def __iter__(self) -> Iterator[ReplayBatch]:
        for slot in range(self._filled):
            yield as_batch({name: part[slot].clone() for name, part in self._slots.items()})

    def __repr__(self) -> str:
        made = f"ReplayMemory({self.capacity}, {self.policy!r}, seed={self.seed})"
        if not self._slots:
            return f"{made}: empty"
        count = len(self.class_counts())
        classes = f"{count} class{'' if count == 1 else 'es'}"
        return f"{made}: {self._filled} samples of {classes}, {kind_of(self._slots)}"

    @torch.no_grad()
    def add(
        self, x: Values | Mapping[str, Values], y: Values, logits: Tensor | None = None
    ) -> None:
        """Offer samples x [B, *shape] with labels y [B] and, optionally, logits [B, K].

        `x` may be a dict of tensors [B, *shape], such as `input_ids` and `attention_mask`; `draw`
        then returns a dict. With the policy "reservoir", labels may be dense, [B, ...], such as one
        per pixel or token, with logits [B, K, ...].

        All samples have the type, shape and names of the first ones, and all or none have logits.
        Logits may become wider when a head grows; stored ones are padded with 0. Raises
        ReplayMemoryError if samples do not fit.
        """
        parts = read_samples(x, y, logits)
        check_samples(parts, self._slots, self.policy)
        labels = parts["labels"]
        random, count = generator(self.seed, "add", self._adds), len(labels)
        if self.policy == "balanced":
            slots = self._balanced_slots(random, labels.tolist())
        else:
            slots = offer_slots(random, self._seen, count, self.capacity)
            free = min(self.capacity - self._filled, count)
            slots[:free] = np.arange(self._filled, self._filled + free)
        if self.policy == "merging":  # the samples that each one is the mean of
            parts["counts"] = torch.ones(count, dtype=torch.uint8)
        self._make_room(parts)
        self._seen += count
        sparse = self._filled == self.capacity and self._seen > SPARSE * self.capacity
        if self.policy == "merging" and sparse:
            self._merge(parts, slots)
        self._adds += 1
        self._filled = min(self.capacity, self._filled + count)
        self._put(parts, slots)

    @torch.no_grad()
    def draw(self, n: int, device: torch.device | str | None = None) -> ReplayBatch:
        """Return copies of n distinct random samples, or of all if there are fewer.

        Raises ReplayMemoryError if the memory is empty: check `len(memory)` first.
        """
        if not self._filled:
            raise ReplayMemoryError("the memory is empty; add samples first")
        random = generator(self.seed, "draw", self._draws)
        chosen = random.choice(self._filled, min(_at_least_1("n", n), self._filled), replace=False)
        self._draws += 1
        return as_batch(
            {
                name: part.index_select(0, torch.from_numpy(chosen).to(part.device)).to(device)
                for name, part in self._slots.items()
            }
        )

    def class_counts(self) -> dict[int, int]:
        """Return the number of samples per label; of dense labels, the samples that contain it."""
        labels = self._labels()
        if labels.ndim == 1:
            return dict(Counter(labels.tolist()))
        return dict(Counter(label for own in labels.flatten(1).tolist() for label in set(own)))

    def forget(self, label: int) -> int:
        """Remove all samples of a class, and return their number.

        With dense labels, these are the samples that contain it. New samples fill the free slots
        first.
        """
        if not self._filled:
            return 0
        labels = self._labels().cpu().numpy().reshape(self._filled, -1)
        kept = np.flatnonzero((labels != label).all(1))
        removed = self._filled - len(kept)
        # As many as the rest is a uniform sample of.
        self._seen = self._seen * len(kept) // self._filled
        if label in self._classes:
            del self._balance.offered[self._classes.pop(label)]
            self._classes = {other: number for number, other in enumerate(self._classes)}
        self._keep(kept)
        return removed

    def resize(self, capacity: int) -> None:
        """Change the capacity; a smaller memory keeps a random part, chosen by the policy."""
        self.capacity = capacity = _at_least_1("capacity", capacity)
        random = generator(self.seed, "resize", self._adds)
        order = random.permutation(self._filled)
        if self.policy == "balanced":
            numbers = self._numbers(self._labels())
            sizes = np.bincount(numbers, minlength=len(self._classes)).tolist()
            shares = fair_shares(sizes, capacity)
            kept = [order[numbers[order] == own][:share] for own, share in enumerate(shares)]
            order = np.concatenate([order[:0], *kept])
        self._keep(np.sort(order[:capacity]))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state as tensors, for `torch.save` or safetensors."""
        return {
            "counters": torch.tensor([self._seen, self._adds, self._draws]),
            "made_with": torch.tensor([self.capacity, _POLICIES.index(self.policy), self.seed]),
            "classes": torch.tensor(list(self._classes), dtype=torch.int64),
            "offered": torch.tensor(self._balance.offered, dtype=torch.int64),
            **{name: part[: self._filled].clone() for name, part in self._slots.items()},
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state saved by a memory with the same arguments."""
        samples = {name: part for name, part in state.items() if name not in _NOT_SAMPLES}
        self._check_state(state, samples)
        self._seen, self._adds, self._draws = state["counters"].tolist()
        self._classes = {label: number for number, label in enumerate(state["classes"].tolist())}
        self._refill(samples, state["offered"].cpu().numpy())

    def _labels(self) -> Tensor:
        """Return the labels in memory, [n, ...]."""
        return self._slots["labels"][: self._filled] if self._slots else torch.zeros(0).long()

    def _keep(self, slots: Integers) -> None:
        """Move the samples in these slots to the first ones, and drop the others."""
        rows = torch.from_numpy(slots)
        kept = {n: part.index_select(0, rows.to(part.device)) for n, part in self._slots.items()}
        self._refill(kept, np.array(self._balance.offered, dtype=np.int64))

    def _refill(self, samples: Parts, offered: Integers) -> None:
        """Replace everything in memory."""
        self._slots, self._filled = {}, 0
        classes = np.full(self.capacity, -1, dtype=np.int64)
        if samples:
            self._filled = len(samples["labels"])
            self._make_room(samples)
            self._put(samples, np.arange(self._filled))
        if self.policy == "balanced":
            classes[: self._filled] = self._numbers(self._labels())
        self._balance = ClassBalance(classes, offered)

    def _numbers(self, labels: Tensor) -> Integers:
        """Return the numbers of classes by their labels [n]."""
        return np.array([self._classes[label] for label in labels.tolist()], dtype=np.int64)

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

    def _make_room(self, parts: Parts) -> None:
        """Allocate slots for samples like these, with logits as wide."""
        home = self._device or next(iter(parts.values())).device
        for name, part in parts.items():
            if name not in self._slots:
                shape = (self.capacity, *part.shape[1:])
                self._slots[name] = part.new_zeros(shape, device=home)
        if "logits" in parts:
            stored = self._slots["logits"]
            more = parts["logits"].shape[1] - stored.shape[1]
            if more:
                self._slots["logits"] = F.pad(stored, [0, 0] * (stored.ndim - 2) + [0, more])

    def _put(self, parts: Parts, slots: Integers) -> None:
        """Copy samples [B] to their slots [B]; the last one in a slot wins."""
        last = {slot: place for place, slot in enumerate(slots.tolist()) if slot >= 0}
        target, source = (torch.tensor(list(p), dtype=torch.int64) for p in (last, last.values()))
        for name, stored in self._slots.items():
            kept = parts[name].detach().index_select(0, source.to(parts[name].device))
            stored.index_copy_(0, target.to(stored.device), kept.to(stored.device))

    def _merge(self, parts: Parts, slots: Integers) -> None:
        """Merge the samples without a slot."""
        stored = self._slots
        home = stored["counts"].device
        new = {name: part.detach().to(home).unsqueeze(0) for name, part in parts.items()}
        merge(
            Places(stored["inputs"], stored["labels"], stored.get("logits"), stored["counts"]),
            new["inputs"],
            new["labels"],
            new.get("logits"),
            kept=torch.from_numpy(np.flatnonzero(slots >= 0)).to(home),
            number=self._adds,
        )

    def _check_state(self, state: Mapping[str, Tensor], samples: Parts) -> None:
        """Raise ReplayMemoryError if a state does not fit."""
        names = {name.partition("/")[0] for name in samples} - {"logits"}
        expected = {"inputs", "labels"} | ({"counts"} if self.policy == "merging" else set())
        if not state.keys() >= _NOT_SAMPLES or (samples and names != expected):
            raise ReplayMemoryError(f"not the state of a replay memory: {sorted(state)}")
        own = [self.capacity, _POLICIES.index(self.policy), self.seed]
        made = state["made_with"].tolist()
        if made != own:
            raise ReplayMemoryError(
                f"the state has (capacity, policy, seed) = {made}, this memory {own} (policies: "
                f"0 reservoir, 1 balanced, 2 merging)"
            )
        lengths = {len(part) for part in samples.values()} or {0}
        classes = {*state["classes"].tolist()}
        labels = {*state["labels"].tolist()} if samples and self.policy == "balanced" else set()
        if (
            len(lengths) > 1
            or max(lengths) > min(self.capacity, int(state["counters"][0]))
            or len(classes) != len(state["offered"])
            or not labels <= classes
        ):
            raise ReplayMemoryError("the tensors of the state do not fit together")


def _at_least_1(name: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ReplayMemoryError(f"{name} must be a whole number, got {value!r:.60}") from None
    if number < 1:
        raise ReplayMemoryError(f"{name} must be at least 1, got {value}")
    return number
