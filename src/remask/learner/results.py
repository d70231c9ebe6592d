"""The results of `predict`: data for programs; `str()` of them is for people."""

import csv
import html
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

from remask.durable import AnyPath, write_output
from remask.learner.accounts import html_table, listed

_MOST_NAMED = 6  # classes in a repr
UNKNOWN, NOT_SURE = "unknown", "not sure"


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
        wanted = f"{100 * self.wanted:g} % accuracy"
        if self.confidence is None and self.held_out < (needed := _needed(self.wanted)):
            return (
                f"{wanted} cannot be measured on {self.held_out} held-out samples, it needs "
                f"{needed}, so no sample is answered: learn with a larger memory"
            )
        if self.confidence is None:
            return (
                f"{wanted} is not reached on {self.held_out} held-out samples at any confidence "
                f"(at most {100 * self.best:.1f} %), so no sample is answered"
            )
        return (
            f"on {self.held_out} held-out samples {wanted} needs a confidence of "
            f"{self.confidence:.2f}, which covers {100 * self.coverage:.0f} %"
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
        return self.name or (UNKNOWN if self.unknown else NOT_SURE)


@dataclass(frozen=True, repr=False)
class Predictions(Sequence[Prediction]):
    """The answers for samples, in their order."""

    each: tuple[Prediction, ...]
    abstention: Abstention | None = None
    """When the learner abstains, if `abstain` was given."""
    unknown_test: UnknownTest | None = None
    """When a sample is unknown, if `unknown` was given."""

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

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.each)

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
        """One sentence each about abstaining and unknown samples, as far as they were asked for."""
        notes = []
        if self.abstention is not None:
            answered = sum(prediction.name is not None for prediction in self.each)
            notes.append(f"answered {answered} of {len(self)}; {self.abstention}")
        if self.unknown_test is not None:
            notes.append(f"{sum(self.unknown)} of {len(self)} unknown; {self.unknown_test}")
        return notes

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain dicts, one per sample."""
        return [asdict(prediction) for prediction in self.each]

    def to_json(self, path: AnyPath | None = None) -> str:
        """A JSON object with `predictions`, `abstain` and `unknown`; also written to `path`."""
        tests = {"abstain": self.abstention, "unknown": self.unknown_test}
        found = {name: None if test is None else asdict(test) for name, test in tests.items()}
        return _written(json.dumps({"predictions": self.to_dicts(), **found}, indent=1), path)

    def to_csv(self, path: AnyPath | None = None) -> str:
        """A line per sample, with its most probable classes; also written to `path`, if given."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        most = max((len(prediction.top) for prediction in self.each), default=1)
        more = [f"{kind}_{n}" for n in range(2, most + 1) for kind in ("name", "probability")]
        tested = self.unknown_test is not None
        table.writerow(["source", "name", "probability", *["unknown"] * tested, *more])
        for number, prediction in enumerate(self.each):
            others = [value for pair in prediction.top[1:] for value in pair]
            source = number if prediction.source is None else prediction.source
            known = [prediction.name or "", prediction.probability]
            marked = [int(prediction.unknown)] * tested
            table.writerow([source, *known, *marked, *others])
        return _written(text.getvalue(), path)

    def __repr__(self) -> str:
        found = Counter(prediction.shown for prediction in self.each).most_common(_MOST_NAMED)
        shown = [f"{count} {name}" for name, count in found]
        return f"<Predictions of {len(self)} samples: {listed(shown)}>"

    def _repr_html_(self) -> str:
        rows = [
            (
                number if prediction.source is None else prediction.source,
                prediction.shown,
                f"{100 * prediction.probability:.1f}",
            )
            for number, prediction in enumerate(self.each)
        ]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return html_table(("sample", "class", "probability (%)"), rows) + notes

    def __str__(self) -> str:
        return "\n".join(
            f"{number if prediction.source is None else prediction.source}: {_answer(prediction)}"
            for number, prediction in enumerate(self.each)
        )


def _needed(wanted: float) -> int:
    """Held-out samples without which no accuracy is high enough, by how it is counted."""
    return math.ceil(wanted / (1 - wanted) - 1e-9)


def _answer(prediction: Prediction) -> str:
    if prediction.name is None:
        name, share = prediction.top[0]
        return f"{prediction.shown} ({name} {100 * share:.1f} %)"
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in prediction.top)


def _written(text: str, path: AnyPath | None) -> str:
    text = text if text.endswith("\n") else f"{text}\n"
    if path is not None:
        write_output(Path(path), text.encode())
    return text
