"""Predictions, the confidence below which a learner abstains, and what resembles no class."""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from remask.files import AnyPath
from remask.learner.results import listed
from remask.learner.scoring import class_weights
from remask.learner.settings import LearnerError
from remask.methods.statistics import ClassStatistics
from remask.outputs import write_output

_MOST_NAMED = 6  # classes in a repr
_SHRINKAGE = 10.0  # added to a covariance, in units of the mean variance of a feature


@dataclass(frozen=True)
class Abstention:
    """The confidence that a wanted accuracy needs, measured on held-out samples."""

    wanted: float
    """Share of answers that shall be right."""
    confidence: float | None
    """The lowest probability at which this is so; None if no confidence reaches it."""
    coverage: float
    """Share of held-out samples with at least this confidence; every class weighs the same."""
    best: float
    """The highest accuracy that any confidence reaches, counting one more wrong answer."""
    held_out: int
    """Number of held-out samples."""

    def __str__(self) -> str:
        wanted, samples = f"{100 * self.wanted:g} % accuracy", f"{self.held_out} held-out samples"
        needed = math.ceil(self.wanted / (1 - self.wanted) - 1e-9)
        if self.confidence is not None:
            return (
                f"on {samples} {wanted} needs a confidence of {self.confidence:.2f}, which covers "
                f"{100 * self.coverage:.0f} %"
            )
        if self.held_out < needed:
            return (
                f"{wanted} cannot be measured on {samples}, it needs {needed}, so no sample is "
                f"answered: learn with a larger memory"
            )
        return (
            f"{wanted} is not reached on {samples} at any confidence (at most "
            f"{100 * self.best:.1f} %), so no sample is answered"
        )


@dataclass(frozen=True)
class UnknownTest:
    """The distance from all known classes above which a sample is marked as unknown."""

    rate: float
    """Share of samples of known classes that are marked by mistake."""
    threshold: float
    """Relative Mahalanobis distance in feature space."""
    held_out: int
    """Number of held-out samples that the threshold was calibrated on."""

    def __str__(self) -> str:
        return (
            f"about {100 * self.rate:g} % of samples of known classes are marked as unknown by "
            f"mistake, calibrated on {self.held_out} held-out samples"
        )


@dataclass(frozen=True)
class Prediction:
    """The answer for one sample."""

    name: str | None
    """The most probable class; None if the learner abstains, or if the sample is unknown."""
    probability: float
    """Of the most probable class, whether it is named or not."""
    top: tuple[tuple[str, float], ...]
    """The `top` most probable classes with their probabilities."""
    source: str | None = None
    """The file it was read from, if any."""
    unknown: bool = False
    """Whether the sample resembles no known class; always False unless this was asked for."""

    @property
    def shown(self) -> str:
        """The answer as text: a class, "not sure" or "unknown"."""
        return self.name or ("unknown" if self.unknown else "not sure")

    def __str__(self) -> str:
        shares = [f"{name} {100 * share:.1f} %" for name, share in self.top]
        return ", ".join(shares) if self.name is not None else f"{self.shown} ({shares[0]})"


@dataclass(frozen=True, repr=False)
class Predictions(Sequence[Prediction]):
    """The answers for samples, in their order."""

    each: tuple[Prediction, ...]
    abstention: Abstention | None = None
    """When the learner abstains, if `abstain` was given."""
    unknown_test: UnknownTest | None = None
    """When a sample is unknown, if `unknown` was given."""

    @classmethod
    def of(
        cls,
        scores: Tensor,
        names: Sequence[str],
        sources: Sequence[str] | None = None,
        top: int = 1,
        abstention: Abstention | None = None,
        unknown_test: UnknownTest | None = None,
        distances: Tensor | None = None,
    ) -> "Predictions":
        """Make predictions from scores [n, C]; `unknown_test` compares `distances` [n]."""
        shares, columns = scores.softmax(dim=1).topk(min(top, len(names)), dim=1)
        least = 0.0
        if abstention is not None:
            least = math.inf if abstention.confidence is None else abstention.confidence
        unknown = [False] * len(scores)
        if unknown_test is not None and distances is not None:
            unknown = (distances > unknown_test.threshold).tolist()
        each = []
        for number, (own, chosen) in enumerate(zip(shares.tolist(), columns.tolist(), strict=True)):
            best = tuple((names[column], share) for column, share in zip(chosen, own, strict=True))
            sure = best[0][1] >= least and not unknown[number]
            source = None if sources is None else sources[number]
            name = best[0][0] if sure else None
            each.append(Prediction(name, best[0][1], best, source, unknown[number]))
        return cls(tuple(each), abstention, unknown_test)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> "Predictions": ...
    def __getitem__(self, index: int | slice) -> "Prediction | Predictions":
        if isinstance(index, slice):
            return Predictions(self.each[index], self.abstention, self.unknown_test)
        return self.each[index]

    def __len__(self) -> int:
        return len(self.each)

    @property
    def names(self) -> list[str | None]:
        """The class of each sample; None where the learner abstains or the sample is unknown."""
        return [prediction.name for prediction in self.each]

    @property
    def probabilities(self) -> list[float]:
        """The probability of the most probable class of each sample."""
        return [prediction.probability for prediction in self.each]

    @property
    def unknown(self) -> list[bool]:
        """Whether each sample resembles no known class."""
        return [prediction.unknown for prediction in self.each]

    @property
    def notes(self) -> list[str]:
        """One sentence each about abstaining and unknown samples, if they were asked for."""
        notes = []
        if self.abstention is not None:
            answered = len(self) - self.names.count(None)
            notes.append(f"answered {answered} of {len(self)}; {self.abstention}")
        if self.unknown_test is not None:
            notes.append(f"{sum(self.unknown)} of {len(self)} unknown; {self.unknown_test}")
        return notes

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a plain dict per sample."""
        return [asdict(prediction) for prediction in self.each]

    def to_json(self, path: AnyPath | None = None) -> str:
        """Return a JSON object with `predictions`, `abstain` and `unknown`; also write it."""
        tests = {"abstain": self.abstention, "unknown": self.unknown_test}
        found = {name: None if test is None else asdict(test) for name, test in tests.items()}
        text = json.dumps({"predictions": self.to_dicts(), **found}, indent=1)
        return _written(path, text + "\n")

    def to_csv(self, path: AnyPath | None = None) -> str:
        """Return a line per sample, with its most probable classes; also write it to `path`."""
        stream = io.StringIO()
        table = csv.writer(stream, lineterminator="\n")
        most = max((len(prediction.top) for prediction in self.each), default=1)
        more = [f"{kind}_{n}" for n in range(2, most + 1) for kind in ("name", "probability")]
        tested = self.unknown_test is not None
        table.writerow(["source", "name", "probability", *["unknown"] * tested, *more])
        for source, own in self._labelled():
            others = [value for pair in own.top[1:] for value in pair]
            marked = [int(own.unknown)] * tested
            table.writerow([source, own.name or "", own.probability, *marked, *others])
        return _written(path, stream.getvalue())

    def _labelled(self) -> Iterator[tuple[str | int, Prediction]]:
        for number, own in enumerate(self.each):
            yield number if own.source is None else own.source, own

    def __repr__(self) -> str:
        found = Counter(prediction.shown for prediction in self.each).most_common(_MOST_NAMED)
        shown = [f"{count} {name}" for name, count in found]
        return f"<Predictions of {len(self)} samples: {listed(shown)}>"

    def __str__(self) -> str:
        return "\n".join(f"{source}: {own}" for source, own in self._labelled())


def _written(path: AnyPath | None, text: str) -> str:
    if path is not None:
        write_output(Path(path), text.encode())
    return text


def find_abstention(scores: Tensor, truth: Tensor, wanted: float) -> Abstention:
    """Find the lowest confidence above which a share `wanted` of the answers is right.

    `scores` [n, C] and true columns `truth` [n] are of held-out samples; every class weighs the
    same. One wrong answer is added to those above a confidence: otherwise one of many confidences
    would look good enough by chance where few samples are above it.
    """
    confident, columns = scores.softmax(dim=1).max(dim=1)
    right = columns == truth
    weights = class_weights(truth) * len(truth)
    order = confident.argsort(descending=True, stable=True)
    confident, right, weights = confident[order], right[order], weights[order]
    above, correct = weights.cumsum(0), (weights * right).cumsum(0)
    ends = torch.ones(len(order), dtype=torch.bool)  # the last of those with the same confidence
    ends[:-1] = confident[1:] < confident[:-1]
    reached = (ends & (correct / (above + 1) >= wanted)).nonzero().flatten()
    last = int(reached.max()) if len(reached) else None
    return Abstention(
        wanted=wanted,
        confidence=None if last is None else float(confident[last]),
        coverage=0.0 if last is None else float(above[last] / above[-1]),
        best=float((correct / (above + 1))[ends].max()) if len(order) else 0.0,
        held_out=len(truth),
    )


class Novelty:
    """Relative Mahalanobis distance (Ren et al. 2021) of features from the nearest class.

    It is the squared distance from the nearest class mean, under the covariance within classes,
    minus the squared distance from the mean of all samples, under the covariance of all samples.
    Both covariances are shrunk strongly towards a multiple of the identity.
    """

    def __init__(self, stats: ClassStatistics) -> None:
        assert stats.gram is not None
        seen, total = stats.seen, stats.counts.sum()
        sums, means, centre = stats.sums[seen], stats.means[seen], stats.sums[seen].sum(0) / total
        within = (stats.gram - sums.T @ means) / total
        spread = stats.gram / total - torch.outer(centre, centre)
        self._means, self._centre = means, centre
        self._within, self._spread = _inverse(within), _inverse(spread)

    def distances(self, features: Tensor) -> Tensor:
        """Compute the distances [n] of features [n, D]; they may be below 0."""
        apart = features.double() - self._centre
        means = self._means - self._centre
        own = _squared(apart, self._within)
        cross = apart @ self._within @ means.T
        nearest = (own.unsqueeze(1) - 2 * cross + _squared(means, self._within)).min(1).values
        return nearest - _squared(apart, self._spread)


def unknown_test(distances: Tensor, rate: float) -> UnknownTest:
    """Calibrate the threshold on the distances [n] of held-out samples of known classes.

    A new sample of the same kind is above it with a probability of at most `rate` (conformal
    prediction). Raises LearnerError if there are too few samples for the rate.
    """
    count = len(distances)
    rank = math.ceil((count + 1) * (1 - rate) - 1e-9)
    if rank > count:
        raise LearnerError(
            f"a false-alarm rate of {rate:g} needs at least {math.ceil(1 / rate - 1e-9) - 1} "
            f"held-out samples, and the learner has {count}: give unknown={1 / (count + 1):.2g} or "
            f"more, or learn with a larger memory"
        )
    threshold = float(distances.sort().values[max(rank, 1) - 1])
    return UnknownTest(rate, threshold, count)


def _inverse(covariance: Tensor) -> Tensor:
    covariance = (covariance + covariance.T) / 2
    scale = float(covariance.diagonal().mean())
    covariance.diagonal().add_(_SHRINKAGE * scale if scale > 0 else 1.0)
    inverse: Tensor = torch.linalg.inv(covariance)
    return inverse


def _squared(rows: Tensor, precision: Tensor) -> Tensor:
    return ((rows @ precision) * rows).sum(1)


def check_share(name: str, value: object, meaning: str, example: str) -> None:
    """Raise LearnerError unless a value is None or a number between 0 and 1."""
    if value is None or (type(value) in (int, float) and 0 < value < 1):  # type: ignore[operator]
        return
    raise LearnerError(
        f"{name}={value!r:.60}: give the {meaning} as a number between 0 and 1, such as {example}"
    )
