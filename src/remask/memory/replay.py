"""A replay memory for any training loop."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from remask.config import MemoryPolicy
from remask.memory.policies import SPARSE, ClassBalance, Integers, Places, fair_shares, merge
from remask.memory.replay_samples import (
    PREFIX,
    ReplayBatch,
    ReplayMemoryError,
    Values,
    check_samples,
    read_samples,
)
from remask.memory.reservoir import offer_slots
from remask.randomness import generator

_POLICIES = get_args(MemoryPolicy)
_ALWAYS = {"classes", "offered", "counters", "made_with"}
_PER_SAMPLE = {"inputs", "labels", "logits", "counts"}


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
        self.capacity, self.policy, self.seed = _at_least_1("capacity", capacity), policy, seed
        self._device = None if device is None else torch.device(device)
        self._samples: ReplayBatch | None = None  # all slots; None before the first add
        self._counts: Tensor | None = None  # samples merged into each slot
        self._filled = self._seen = self._adds = self._draws = 0
        self._classes: dict[int, int] = {}  # label -> number, in order of arrival
        self._balance = ClassBalance(np.full(capacity, -1), np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return self._filled

    def __iter__(self) -> Iterator[ReplayBatch]:
        stored = self._stored()
        for slot in range(self._filled):
            assert stored is not None
            yield stored.map(lambda part, slot=slot: part[slot].clone())  # type: ignore[misc]

    def __repr__(self) -> str:
        made = f"ReplayMemory({self.capacity}, {self.policy!r}, seed={self.seed})"
        if self._samples is None:
            return f"{made}: empty"
        counts = self.class_counts()
        return f"{made}: {self._filled} samples of {len(counts)} classes, {self._samples.kind()}"

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
        batch = read_samples(x, y, logits)
        check_samples(batch, self._samples, self.policy)
        random, count = generator(self.seed, "add", self._adds), len(batch.labels)
        if self.policy == "balanced":
            slots = self._balanced_slots(random, batch.labels.tolist())
        else:
            slots = offer_slots(random, self._seen, count, self.capacity)
            free = min(self.capacity - self._filled, count)
            slots[:free] = np.arange(self._filled, self._filled + free)
        self._make_room(batch)
        self._seen += count
        if self._filled == self.capacity and self._seen > SPARSE * self.capacity:
            self._merge(batch, slots)
        self._adds += 1
        self._filled = min(self.capacity, self._filled + count)
        self._put(batch, slots)

    @torch.no_grad()
    def draw(self, n: int, device: torch.device | str | None = None) -> ReplayBatch:
        """Return copies of n distinct random samples, or of all if there are fewer.

        Raises ReplayMemoryError if the memory is empty: check `len(memory)` first.
        """
        if self._samples is None or not self._filled:
            raise ReplayMemoryError("the memory is empty; add samples first")
        random = generator(self.seed, "draw", self._draws)
        chosen = random.choice(self._filled, min(_at_least_1("n", n), self._filled), replace=False)
        self._draws += 1
        home = self._samples.labels.device
        slots = torch.from_numpy(chosen).to(home)
        target = home if device is None else device
        return self._samples.map(lambda part: part.index_select(0, slots).to(target))

    def class_counts(self) -> dict[int, int]:
        """Return the number of samples per label; of dense labels, the samples that contain it."""
        if self._samples is None:
            return {}
        labels = self._samples.labels[: self._filled]
        if labels.ndim == 1:
            return dict(Counter(labels.tolist()))
        return dict(Counter(label for own in labels.flatten(1).tolist() for label in set(own)))

    def forget(self, label: int) -> int:
        """Remove all samples of a class, and return their number.

        With dense labels, these are the samples that contain it. New samples fill the free slots
        first.
        """
        if self._samples is None or not self._filled:
            return 0
        labels = self._samples.labels[: self._filled].cpu().numpy().reshape(self._filled, -1)
        kept = np.flatnonzero((labels != label).all(1))
        removed = self._filled - len(kept)
        self._seen = (
            self._seen * len(kept) // self._filled
        )  # as many as a uniform sample stands for
        if label in self._classes:
            del self._balance.offered[self._classes.pop(label)]
            self._classes = {other: number for number, other in enumerate(self._classes)}
        self._keep(kept)
        return removed

    def resize(self, capacity: int) -> None:
        """Change the capacity; a smaller memory keeps a random part, chosen by the policy."""
        self.capacity = _at_least_1("capacity", capacity)
        random = generator(self.seed, "resize", self._adds)
        order = random.permutation(self._filled)
        if self.policy == "balanced" and self._samples is not None:
            numbers = self._numbers(self._samples.labels[: self._filled])
            sizes = np.bincount(numbers, minlength=len(self._classes)).tolist()
            shares = fair_shares(sizes, capacity)
            kept = [order[numbers[order] == own][:share] for own, share in enumerate(shares)]
            order = np.concatenate([order[:0], *kept])
        self._keep(np.sort(order[:capacity]))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state as tensors, for `torch.save` or safetensors."""
        stored = self._stored()
        state = {
            "counters": torch.tensor([self._seen, self._adds, self._draws]),
            "made_with": torch.tensor([self.capacity, _POLICIES.index(self.policy), self.seed]),
            "classes": torch.tensor(list(self._classes), dtype=torch.int64),
            "offered": torch.tensor(self._balance.offered, dtype=torch.int64),
        }
        for name, part in ({} if stored is None else stored.named()).items():
            state[name] = part.clone()
        if self._counts is not None:
            state["counts"] = self._counts[: self._filled].clone()
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state saved by a memory with the same arguments."""
        self._check_state(state)
        self._seen, self._adds, self._draws = state["counters"].tolist()
        self._classes = {label: number for number, label in enumerate(state["classes"].tolist())}
        saved = None
        if "labels" in state:
            inputs = {n.removeprefix(PREFIX): t for n, t in state.items() if n.startswith(PREFIX)}
            saved = ReplayBatch(inputs or state["inputs"], state["labels"], state.get("logits"))
        self._refill(saved, state.get("counts"), state["offered"].cpu().numpy())

    def _stored(self) -> ReplayBatch | None:
        """Return the samples in memory, without the empty slots."""
        if self._samples is None:
            return None
        return self._samples.map(lambda part: part[: self._filled])

    def _keep(self, slots: Integers) -> None:
        """Move the samples in these slots to the first ones, and drop the others."""
        stored, counts, rows = self._stored(), self._counts, torch.from_numpy(slots)
        if stored is not None:
            stored = stored.map(lambda part: part.index_select(0, rows.to(part.device)))
            counts = None if counts is None else counts.index_select(0, rows.to(counts.device))
        self._refill(stored, counts, np.array(self._balance.offered, dtype=np.int64))

    def _refill(
        self, samples: ReplayBatch | None, counts: Tensor | None, offered: Integers
    ) -> None:
        """Replace everything in memory."""
        self._samples = self._counts = None
        self._filled, slots = 0, np.full(self.capacity, -1, dtype=np.int64)
        if samples is not None:
            self._filled = len(samples.labels)
            self._make_room(samples)
            self._put(samples, np.arange(self._filled))
            if self._counts is not None and counts is not None:
                self._counts[: self._filled] = counts.to(self._counts.device)
            if self.policy == "balanced":
                slots[: self._filled] = self._numbers(samples.labels)
        self._balance = ClassBalance(slots, offered)

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

    def _make_room(self, batch: ReplayBatch) -> None:
        """Allocate slots for samples like these, with logits as wide."""
        if self._samples is None:
            first, capacity = next(iter(batch.named().values())), self.capacity
            home = self._device or first.device
            self._samples = batch.map(
                lambda part: part.new_zeros((capacity, *part.shape[1:]), device=home)
            )
            if self.policy == "merging":
                self._counts = torch.ones(self.capacity, dtype=torch.uint8, device=home)
        wide, stored = batch.logits, self._samples.logits
        if wide is not None and stored is not None and wide.shape[1] > stored.shape[1]:
            more = [0, 0] * (stored.ndim - 2) + [0, wide.shape[1] - stored.shape[1]]
            self._samples = self._samples._replace(logits=torch.nn.functional.pad(stored, more))

    def _put(self, batch: ReplayBatch, slots: Integers) -> None:
        """Copy samples [B] to their slots [B]; the last one in a slot wins."""
        assert self._samples is not None
        last = {slot: place for place, slot in enumerate(slots.tolist()) if slot >= 0}
        if not last:
            return
        target, source = (torch.tensor(list(part)) for part in (last.keys(), last.values()))
        for stored, given in zip(
            self._samples.named().values(), batch.named().values(), strict=True
        ):
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
        new = batch.map(lambda part: part.detach().to(home).unsqueeze(0))
        places = Places(*self._samples, self._counts)
        merge(places, new.inputs, new.labels, new.logits, kept=own, number=self._adds)

    def _check_state(self, state: Mapping[str, Tensor]) -> None:
        """Raise ReplayMemoryError if a state does not fit."""
        found = {"inputs" if name.startswith(PREFIX) else name for name in state}
        needed = _ALWAYS | ({"inputs", "labels"} if "labels" in state else set())
        needed |= {"counts"} if "labels" in state and self.policy == "merging" else set()
        if found - {"logits"} != needed:
            raise ReplayMemoryError(f"not the state of a replay memory: {sorted(state)}")
        own = [self.capacity, _POLICIES.index(self.policy), self.seed]
        made = state["made_with"].tolist()
        if made != own:
            raise ReplayMemoryError(
                f"the state has (capacity, policy, seed) = {made}, this memory {own} (policies: "
                f"0 reservoir, 1 balanced, 2 merging)"
            )
        lengths = {len(t) for n, t in state.items() if n in _PER_SAMPLE or n.startswith(PREFIX)}
        known, filled = {*state["classes"].tolist()}, max(lengths, default=0)
        fits = (
            filled <= min(self.capacity, state["counters"].tolist()[0])
            and len(lengths) <= 1
            and len(known) == len(state["offered"])
            and (self.policy != "balanced" or not filled or {*state["labels"].tolist()} <= known)
        )
        if not fits:
            raise ReplayMemoryError("the tensors of the state do not fit together")


def _at_least_1(name: str, value: int) -> int:
    if value < 1:
        raise ReplayMemoryError(f"{name} must be at least 1, got {value}")
    return value
