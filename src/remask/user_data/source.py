"""The interface of everything that samples are read from."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from remask.user_data.formats import InputFormat
from remask.user_data.skipping import Skipped


class Source(ABC):
    """Samples in their order, with the names of their classes if they are labelled.

    If unreadable samples are skipped, `count`, `names`, `sources` and `skipped` are final as soon
    as `samples` has yielded its first sample.
    """

    def __init__(
        self, count: int, names: list[str] | None, sources: list[str] | None = None
    ) -> None:
        self.count = count
        self.names = names
        """The class of each sample; None if they are not labelled."""
        self.sources = sources
        """Where each sample is from, a file or FILE:LINE; None if they are from memory."""
        self.skipped = Skipped(of=count)
        """What was not read."""

    @abstractmethod
    def format(self) -> InputFormat:
        """Return the format of the samples, for a learner that has none yet. Raises DataError."""

    @abstractmethod
    def samples(self, form: InputFormat) -> Iterator[Any]:
        """Yield the samples: arrays of this format, or strings if it is text. Raises DataError."""


def sample_bytes(sample: Any) -> bytes:
    """Return the bytes of a sample from which a fingerprint is made."""
    if isinstance(sample, str):
        # Hashed, so that the bytes of a list of texts depend on where each one ends.
        return hashlib.sha256(sample.encode()).digest()
    data: bytes = sample.tobytes()
    return data
