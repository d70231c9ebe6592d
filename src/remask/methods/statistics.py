"""Sums over samples from which linear heads are computed in closed form."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.errors import RemaskError

_ROWS_AT_ONCE = 4096  # one product of many rows is faster than many products


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
    def empty(cls, classes: int, features: int) -> "ClassStatistics":
        """Return the statistics of no samples, for K classes and D features."""
        shapes = (classes,), (classes, features), (features, features)
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    @property
    def seen(self) -> Tensor:
        """Bool [K]: the classes that have samples."""
        return self.counts > 0

    @property
    def means(self) -> Tensor:
        """The mean of each class, [K, D]; 0 without samples."""
        return self.sums / self.counts.clamp(min=1).unsqueeze(1)

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Add samples: features [n, D], labels int [n]. Raises StatisticsError."""
        features, labels = _checked(features, labels, *self.sums.shape)
        accumulate(self.counts, self.sums, self.gram, features, labels)

    def merge(self, other: "ClassStatistics", factor: float = 1.0) -> None:
        """Add the samples of other statistics with the same classes and features."""
        self.counts.add_(other.counts, alpha=factor)
        self.sums.add_(other.sums, alpha=factor)
        if self.gram is not None and other.gram is not None:
            self.gram.add_(other.gram, alpha=factor)

    def remove(self, other: "ClassStatistics") -> None:
        """Remove samples that were added before.

        Raises StatisticsError if a class would have fewer than 0 samples.
        """
        if labels := (other.counts > self.counts).nonzero().flatten().tolist():
            raise StatisticsError(f"classes {labels[:5]} have fewer samples than are to be removed")
        self.merge(other, -1.0)
        self.sums[~self.seen] = 0.0  # no rounding error remains of a class without samples
        if self.gram is not None and not bool(self.seen.any()):
            self.gram.zero_()

    def to_tensors(self) -> dict[str, Tensor]:
        """Return everything as a flat dict of tensors, for a file; the gram as its upper half."""
        tensors = {"counts": self.counts, "sums": self.sums}
        if self.gram is not None:
            rows, columns = torch.triu_indices(*self.gram.shape)
            tensors["gram"] = self.gram[rows, columns]
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "ClassStatistics":
        """Read what `to_tensors` returned. Raises StatisticsError if it is damaged."""
        if not {"counts", "sums"} <= tensors.keys() <= {"counts", "sums", "gram"}:
            raise StatisticsError(f"statistics need counts, sums, gram; found {sorted(tensors)}")
        counts, sums, packed = tensors["counts"], tensors["sums"], tensors.get("gram")
        classes, size = (len(counts), sums.shape[-1]) if counts.ndim and sums.ndim else (0, 0)
        _check("counts", counts, torch.float64, (classes,))
        _check("sums", sums, torch.float64, (classes, size))
        if bool((counts < 0).any()) or not torch.equal(counts, counts.round()):
            raise StatisticsError("counts must be whole numbers, 0 or more")
        if packed is None:
            return cls(counts.clone(), sums.clone(), None)
        _check("gram", packed, torch.float64, (size * (size + 1) // 2,))
        gram = torch.zeros(size, size, dtype=torch.float64)
        rows, columns = torch.triu_indices(size, size)
        gram[rows, columns] = gram[columns, rows] = packed
        if bool((gram.diagonal() < 0).any()):
            raise StatisticsError("the gram's diagonal, sums of squares, has numbers below 0")
        return cls(counts.clone(), sums.clone(), gram)


@dataclass(frozen=True, eq=False)
class _ClassMoments:
    """Count, sum, and second moments about the mean as a triangular factor."""

    count: int
    total: Tensor
    """float64 [D]."""
    factor: Tensor
    """float64 [min(count, D), D], upper triangular: factor^T factor is the sum of
    (x - mean)(x - mean)^T."""

    @property
    def mean(self) -> Tensor:
        return self.total / self.count

    def merged(self, other: "_ClassMoments") -> "_ClassMoments":
        """The moments of both sets of samples together."""
        count = self.count + other.count
        between = (self.mean - other.mean) * (self.count * other.count / count) ** 0.5
        rows = torch.cat([self.factor, other.factor, between.unsqueeze(0)])
        factor = _triangular(rows)[: min(count, rows.shape[1])]
        return _ClassMoments(count, self.total + other.total, factor)


class PerClassStatistics:
    """The statistics of each class: what `ClassStatistics` sums up, class by class.

    The second moments of n samples with D features are a triangular factor of min(n, D) rows, which
    takes fewer numbers than the samples, and never more than D (D + 1) / 2. The sum over some
    classes gives the heads of a learner that never saw the others.
    """

    def __init__(self, features: int) -> None:
        self.features = features
        """D."""
        self._classes: dict[int, _ClassMoments] = {}

    @property
    def labels(self) -> list[int]:
        """The classes that have samples, in ascending order."""
        return sorted(self._classes)

    def count(self, label: int) -> int:
        """Return how many samples of a class have been added."""
        return self._classes[label].count if label in self._classes else 0

    def add(self, label: int, features: Tensor) -> None:
        """Add samples [n, D] to a class. Raises StatisticsError."""
        labels = torch.zeros(len(features), dtype=torch.int64)
        features, _ = _checked(features, labels, 1, self.features)
        if len(features):
            total = features.sum(0)
            factor = _triangular(features - total / len(features))
            self._put(label, _ClassMoments(len(features), total, factor))

    def take(self, other: "PerClassStatistics", labels: Mapping[int, int]) -> None:
        """Add samples of other statistics of the same features; `labels` maps theirs to own."""
        for old, new in labels.items():
            self._put(new, other._classes[old])

    def total(self, classes: int) -> ClassStatistics:
        """Sum up the statistics of all classes, for heads of K classes."""
        stats = ClassStatistics.empty(classes, self.features)
        assert stats.gram is not None
        labels, group = self.labels, list[Tensor]()
        for label in labels:
            own = self._classes[label]
            stats.counts[label], stats.sums[label] = own.count, own.total
            # Rows whose products sum up to the second moments about 0.
            group += [own.factor, (own.mean * own.count**0.5).unsqueeze(0)]
            if sum(map(len, group)) >= _ROWS_AT_ONCE or label == labels[-1]:
                rows = torch.cat(group)
                stats.gram.addmm_(rows.T, rows)
                group = []
        return stats

    def draw(self, label: int, noise: Tensor) -> Tensor:
        """Draw samples [n, D] from a normal distribution with the moments of a class.

        `noise` is standard normal, [n, r] with r at least the rows of the factor, min(count, D).
        """
        own = self._classes[label]
        noise = noise[:, : len(own.factor)].to(torch.float64)
        drawn: Tensor = own.mean + noise @ own.factor / max(own.count - 1, 1) ** 0.5
        return drawn

    def to_tensors(self) -> dict[str, Tensor]:
        """Return all classes as a flat dict of tensors, for a file.

        Factors are rounded to float32; counts and sums are exact.
        """
        tensors = {}
        for label in self.labels:
            own = self._classes[label]
            rows, columns = torch.triu_indices(*own.factor.shape)
            tensors[f"{label}/count"] = torch.tensor(own.count, dtype=torch.int64)
            tensors[f"{label}/sum"] = own.total.clone()
            tensors[f"{label}/factor"] = own.factor[rows, columns].to(torch.float32)
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], features: int) -> "PerClassStatistics":
        """Read what `to_tensors` returned. Raises StatisticsError if anything is damaged."""
        found = cls(features)
        names = {name.partition("/")[0] for name in tensors}
        if not all(name.isdecimal() for name in names):
            raise StatisticsError(f"class numbers expected, found {sorted(names)[:5]}")
        for label in sorted(map(int, names)):
            count, total, packed = (tensors.get(f"{label}/{n}") for n in ("count", "sum", "factor"))
            if count is None or total is None or packed is None:
                raise StatisticsError(f"class {label} needs count, sum and factor")
            _check(f"{label}/count", count, torch.int64, ())
            number, rows = int(count), min(int(count), features)
            if number < 1:
                raise StatisticsError(f"{label}/count must be 1 or more, found {number}")
            size = rows * features - rows * (rows - 1) // 2
            _check(f"{label}/sum", total, torch.float64, (features,))
            _check(f"{label}/factor", packed, torch.float32, (size,))
            factor = torch.zeros(rows, features, dtype=torch.float64)
            factor[*torch.triu_indices(*factor.shape)] = packed.to(torch.float64)
            found._classes[label] = _ClassMoments(number, total.clone(), factor)
        return found

    def _put(self, label: int, moments: _ClassMoments) -> None:
        earlier = self._classes.get(label)
        self._classes[label] = moments if earlier is None else earlier.merged(moments)


def _triangular(rows: Tensor) -> Tensor:
    """The upper triangular R with R^T R = rows^T rows, [min(n, D), D].

    Its diagonal is not negative, so it does not depend on the order of rows.
    """
    factor: Tensor = torch.linalg.qr(rows, mode="r").R
    return factor * torch.where(factor.diagonal() < 0, -1.0, 1.0).unsqueeze(1)


def _checked(features: Tensor, labels: Tensor, classes: int, size: int) -> tuple[Tensor, Tensor]:
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


def _check(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise StatisticsError(
            f"{name} must be {dtype} {list(shape)}, found {tensor.dtype} {list(tensor.shape)}"
        )
    if not bool(tensor.isfinite().all()):
        raise StatisticsError(f"{name} has numbers that are not finite")
