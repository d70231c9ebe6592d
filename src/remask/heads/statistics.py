"""Sums over samples from which linear heads are computed in closed form."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.errors import RemaskError


class StatisticsError(RemaskError, ValueError):
    """Samples or stored tensors that statistics cannot be computed from."""


def accumulate(
    counts: Tensor, sums: Tensor, gram: Tensor | None, features: Tensor, labels: Tensor
) -> None:
    """Add samples, float64 [n, D] with labels int64 [n], to the three sums, in place.

    Checks nothing and reads no value, so it does not wait for the device.
    """
    counts.index_add_(0, labels, torch.ones_like(labels, dtype=torch.float64))
    sums.index_add_(0, labels, features)
    if gram is not None:
        gram.addmm_(features.T, features)


@dataclass(eq=False)
class ClassStatistics:
    """Counts and sums per class, and the second moments of all classes together.

    Every operation is exact up to the rounding of float64, so the order of samples, batches and
    visits does not matter.
    """

    counts: Tensor
    """float64 [K]."""
    sums: Tensor
    """float64 [K, D]: the sum of each class's features."""
    gram: Tensor | None
    """float64 [D, D]: the sum of x x^T over all samples. None: not stored, enough for `ncm`."""

    @classmethod
    def empty(
        cls, classes: int, features: int, *, gram: bool = True, device: torch.device | str = "cpu"
    ) -> "ClassStatistics":
        """Return the statistics of no samples, for K classes and D features."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        second = zeros(features, features) if gram else None
        return cls(zeros(classes), zeros(classes, features), second)

    @property
    def seen(self) -> Tensor:
        """Bool [K]: the classes that have samples."""
        return self.counts > 0

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Add samples: features [n, D], labels int [n]. Raises StatisticsError."""
        features, labels = checked_samples(features, labels, *self.sums.shape)
        accumulate(self.counts, self.sums, self.gram, features, labels)

    def merge(self, other: "ClassStatistics") -> None:
        """Add the samples of other statistics with the same classes and features."""
        self._combine(other, 1.0)

    def remove(self, other: "ClassStatistics") -> None:
        """Take out samples that were added before.

        Raises StatisticsError if a class would have fewer than 0 samples.
        """
        if bool((other.counts > self.counts).any()):
            labels = (other.counts > self.counts).nonzero().flatten().tolist()
            raise StatisticsError(f"classes {labels[:5]} have fewer samples than are to be removed")
        self._combine(other, -1.0)
        self.sums[~self.seen] = 0.0  # nothing remains of a class without samples, not even rounding
        if self.gram is not None and not bool(self.seen.any()):
            self.gram.zero_()

    def _combine(self, other: "ClassStatistics", factor: float) -> None:
        if self.sums.shape != other.sums.shape or (self.gram is None) != (other.gram is None):
            raise StatisticsError(
                f"statistics of {list(self.sums.shape)} classes and features cannot be combined "
                f"with those of {list(other.sums.shape)}, nor those with second moments with those "
                f"without"
            )
        self.counts.add_(other.counts, alpha=factor)
        self.sums.add_(other.sums, alpha=factor)
        if self.gram is not None and other.gram is not None:
            self.gram.add_(other.gram, alpha=factor)

    def select(self, classes: Tensor) -> "ClassStatistics":
        """Return the statistics with other class numbers: class k was `classes[k]`, or new if -1.

        No class with samples may be left out; `remove` it first.
        """
        old = classes >= 0
        counts = torch.where(old, self.counts[classes.clamp(min=0)], 0.0)
        if not torch.equal(counts.sum(), self.counts.sum()):
            raise StatisticsError("a class that has samples would be left out: remove it first")
        sums = torch.where(old.unsqueeze(1), self.sums[classes.clamp(min=0)], 0.0)
        return ClassStatistics(counts, sums, self.gram)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return everything as a flat dict of tensors, for a file; the gram as its upper half."""
        tensors = {"counts": self.counts, "sums": self.sums}
        if self.gram is not None:
            size = len(self.gram)
            rows, columns = torch.triu_indices(size, size)
            tensors["gram"] = self.gram[rows, columns]
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "ClassStatistics":
        """Read what `to_tensors` returned. Raises StatisticsError if it is damaged."""
        if not {"counts", "sums"} <= tensors.keys() <= {"counts", "sums", "gram"}:
            raise StatisticsError(f"statistics need counts, sums, gram; found {sorted(tensors)}")
        for name, tensor in tensors.items():
            check_stored(name, tensor, torch.float64)
        counts, sums, packed = tensors["counts"], tensors["sums"], tensors.get("gram")
        if counts.ndim != 1 or sums.ndim != 2 or len(counts) != len(sums):
            raise StatisticsError(
                f"counts are {list(counts.shape)} and sums {list(sums.shape)}; [K] and [K, D] fit"
            )
        if bool((counts < 0).any()) or not torch.equal(counts, counts.round()):
            raise StatisticsError("counts must be whole numbers, 0 or more")
        size = sums.shape[1]
        if packed is None:
            return cls(counts.clone(), sums.clone(), None)
        if packed.shape != (size * (size + 1) // 2,):
            raise StatisticsError(
                f"the gram of {size} features has {size * (size + 1) // 2} numbers, not "
                f"{list(packed.shape)}"
            )
        gram = torch.zeros(size, size, dtype=torch.float64)
        rows, columns = torch.triu_indices(size, size)
        gram[rows, columns] = packed
        gram[columns, rows] = packed
        if bool((gram.diagonal() < 0).any()):
            raise StatisticsError("the gram's diagonal, sums of squares, has numbers below 0")
        return cls(counts.clone(), sums.clone(), gram)


def checked_samples(
    features: Tensor, labels: Tensor, classes: int, size: int
) -> tuple[Tensor, Tensor]:
    """Return features as float64 [n, D] and labels as int64 [n]. Raises StatisticsError."""
    if features.ndim != 2 or features.shape[1] != size or labels.shape != features.shape[:1]:
        raise StatisticsError(
            f"features must be [n, {size}] and labels [n], got {list(features.shape)} and "
            f"{list(labels.shape)}"
        )
    features, labels = features.to(torch.float64), labels.to(torch.int64)
    if not bool(features.isfinite().all()):
        rows = (~features.isfinite().all(1)).nonzero().flatten().tolist()
        raise StatisticsError(f"features must be finite; those of rows {rows[:5]} are not")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise StatisticsError(
            f"labels must be 0 to {classes - 1}, got {int(labels.min())} to {int(labels.max())}"
        )
    return features, labels


def check_stored(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    """Refuse a stored tensor of another type, or with numbers that are not finite."""
    if tensor.dtype != dtype:
        raise StatisticsError(f"{name} must be {dtype}, found {tensor.dtype}")
    if not bool(tensor.isfinite().all()):
        raise StatisticsError(f"{name} has numbers that are not finite")
