"""The interface of encoders, and the parts that all of them share."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import override

from remask.encoders.catalogue import EncoderError, Kind

CHUNK = 64
"""Samples per forward pass: larger chunks are slower, since they leave the processor's cache."""

Samples = Tensor | npt.NDArray[Any] | Sequence[str]
"""Photographs uint8 [B, 3, H, W], arrays [B, ...], or texts."""


class Encoder(nn.Module, ABC):
    """A frozen network that computes features; always in evaluation mode, without gradients.

    A subclass sets the attributes in `__init__` and defines `forward`. One that takes texts also
    defines `encode`.
    """

    name: str
    """Stored in settings, such as `efficientnet-lite0` or `my_module:my_encoder`."""
    kind: Kind
    """The inputs of `encode`."""
    features: int
    """Features per sample, F."""
    image_size: int | None = None
    """Default side of photographs in pixels; None for other kinds."""
    fingerprint: str
    """SHA-256 of the weights."""

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """Compute features float32 [B, F].

        Photographs are uint8 [B, 3, H, W]; normalising them is part of this function, so that an
        exported encoder contains it. Encoders of texts take token ids, int64 [B, L].
        """

    def encode(self, samples: Samples, done: Callable[[int], None] | None = None) -> Tensor:
        """Compute the features of any number of samples, float32 [B, F] on the CPU.

        `done` is called after each chunk with the number of samples in it.
        """
        takes = f"the encoder {self.name!r} takes {_TAKES[self.kind]}, not "
        if isinstance(samples, Sequence):
            raise EncoderError(f"{takes}a list")
        is_bytes = samples.dtype in (torch.uint8, np.uint8)
        if self.kind == "image" and not (is_bytes and samples.ndim == 4 and samples.shape[1] == 3):
            raise EncoderError(f"{takes}{samples.dtype} {list(samples.shape)}")
        return self.encode_chunks(_chunks(samples), len(samples), done)

    @torch.no_grad()
    def encode_chunks(
        self,
        chunks: Iterator[tuple[slice | Tensor, Tensor]],
        count: int,
        done: Callable[[int], None] | None = None,
    ) -> Tensor:
        """Apply `forward` to chunks of inputs, each with the rows of the result that it fills."""
        features = torch.empty(count, self.features)
        for rows, inputs in chunks:
            form = torch.channels_last if inputs.ndim == 4 else torch.contiguous_format
            inputs = inputs.to(device=self.device, memory_format=form)
            features[rows] = self(inputs).to(device="cpu", dtype=torch.float32)
            if done is not None:
                done(len(inputs))
        return features

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        tensors = (*self.parameters(), *self.buffers())
        return tensors[0].device if tensors else torch.device("cpu")

    @override
    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode, also as part of a net that is trained."""
        return super().train(False)

    def frozen(self) -> Self:
        """Freeze the weights; convolutions get the memory format that is fastest for them."""
        self.requires_grad_(False)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.data = module.weight.data.to(memory_format=torch.channels_last)
        return self.train(False)


_TAKES = {
    "image": "photographs, uint8 [B, 3, H, W] from 0 to 255",
    "text": "a list of texts",
    "array": "an array or tensor [B, ...]",
}


def _chunks(samples: Tensor | npt.NDArray[Any]) -> Iterator[tuple[slice, Tensor]]:
    """Yield chunks of samples as tensors; an array on disk is read chunk by chunk."""
    for start in range(0, len(samples), CHUNK):
        rows = slice(start, start + CHUNK)
        chunk = samples[rows]
        yield rows, chunk if isinstance(chunk, Tensor) else torch.from_numpy(np.array(chunk))


class PreparedEncoder(Encoder):
    """An encoder around a network that takes float pixels: divides by 255, then normalises."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        name: str,
        network: nn.Module,
        *,
        kind: Kind = "image",
        image_size: int | None = None,
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        std: Sequence[float] = (1.0, 1.0, 1.0),
        input_shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.name, self.kind, self.image_size = name, kind, image_size
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1))
        self.frozen()
        side = image_size or 0
        self.features = _count_features(self, input_shape or (3, side, side))
        self.fingerprint = fingerprint(self)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute features float32 [B, F] of pixels; see `Encoder.forward`."""
        if inputs.dtype == torch.uint8:
            inputs = inputs.to(torch.float32) / 255
        if inputs.is_floating_point():
            inputs = inputs.to(torch.float32)
        if self.kind == "image":
            inputs = (inputs - self.mean) / self.std
        features: Tensor = self.network(inputs).to(torch.float32)
        return features


@torch.no_grad()
def _count_features(encoder: Encoder, shape: tuple[int, ...]) -> int:
    """Return the number of features, by running the encoder on zeros."""
    # Arrays of floats are more common; a net that starts with nn.Embedding takes integers only.
    dtypes = (torch.uint8,) if encoder.kind == "image" else (torch.float32, torch.int64)
    failures: list[Exception] = []
    for dtype in dtypes:
        try:
            found = encoder(torch.zeros(2, *shape, dtype=dtype, device=encoder.device))
        except Exception as error:  # of a user's network
            failures.append(error)
            continue
        if found.ndim != 2 or len(found) != 2:
            raise EncoderError(
                f"the encoder {encoder.name!r} must turn inputs {[2, *shape]} into features "
                f"[2, F], but returned {list(found.shape)}"
            )
        return int(found.shape[1])
    raise EncoderError(
        f"the encoder {encoder.name!r} failed on inputs {[2, *shape]}: "
        f"{type(failures[0]).__name__}: {str(failures[0])[:300]}"
    ) from failures[0]


def fingerprint(module: nn.Module) -> str:
    """SHA-256 of the names, shapes, types and values of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        value = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
