"""Features: what an encoder computes of inputs, which a learner keeps and learns from."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.encoders import Encoder
from remask.learner.errors import LearnerError
from remask.user_data import InputFormat

AT_ONCE = 64
"""Inputs per forward pass."""
_SMALL_SIDE, _LARGE_SIDE = 128, 224


class Features(nn.Module):
    """From raw inputs to features of length 1.

    Images get the size and the channels that the encoder takes. Of the features of images the
    square root is taken, with their sign, before they are scaled: a few large ones would decide
    otherwise. All of this is inside `forward`, and so part of an export.
    """

    def __init__(
        self, encoder: Encoder, inputs: InputFormat, image_size: tuple[int, int] | None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self._bytes = inputs.dtype == "uint8"
        self._size = image_size if inputs.is_image else None
        self._resize = self._size is not None and self._size != inputs.shape[1:]
        self._shrinks = self._size is not None and min(inputs.shape[1:]) > min(self._size)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute features [B, D] of raw inputs [B, *shape], or of token ids [B, L]."""
        if self._bytes and inputs.dtype != torch.uint8:
            inputs = inputs.to(torch.uint8)
        if self._size is not None:
            if inputs.shape[1] == 1:
                inputs = inputs.expand(-1, 3, -1, -1)
            if self._resize:
                pixels = F.interpolate(
                    inputs.to(torch.float32),
                    self._size,
                    mode="bilinear",
                    align_corners=False,
                    antialias=self._shrinks,
                )
                inputs = pixels.round().clamp(0, 255).to(torch.uint8)
        return self._scaled(self.encoder(inputs))

    @torch.no_grad()
    def encode(self, samples: Sequence[Any], done: Callable[[int], None] | None = None) -> Tensor:
        """Compute the features of samples as they are read, float32 [n, D] on the host.

        `done` is called after each chunk with the number of samples in it.
        """
        if self.encoder.kind == "text":
            return self._scaled(self.encoder.encode([str(text) for text in samples], done))
        parts = []
        for start in range(0, len(samples), AT_ONCE):
            chunk = torch.from_numpy(np.stack(samples[start : start + AT_ONCE]))
            form = torch.channels_last if chunk.ndim == 4 else torch.contiguous_format
            found = self(chunk.to(self.encoder.device, memory_format=form))
            parts.append(found.to("cpu", torch.float32))
            if done is not None:
                done(len(chunk))
        return torch.cat(parts)

    def _scaled(self, features: Tensor) -> Tensor:
        if self.encoder.kind == "image":
            features = features.sign() * features.abs().sqrt()
        return F.normalize(features, dim=1)


def image_size_for(encoder: Encoder, first: tuple[int, int]) -> tuple[int, int] | None:
    """The size at which an encoder sees images of which the first has this height and width.

    It is the encoder's own if that is not the default; else 128 pixels for images of up to 128
    pixels, and 224 for larger ones.
    """
    if encoder.kind != "image":
        return None
    side = encoder.image_size or _SMALL_SIDE
    if side == _SMALL_SIDE and min(first) > _SMALL_SIDE:
        side = _LARGE_SIDE
    return side, side


def check_kind(encoder: Encoder, inputs: InputFormat) -> None:
    """Refuse an encoder that does not take such inputs. Raises LearnerError."""
    takes = {"image": "photographs, as files or uint8 arrays", "text": "texts", "array": "arrays"}
    fits = {
        "image": inputs.is_image and inputs.dtype == "uint8" and inputs.shape[0] in (1, 3),
        "text": inputs.is_text,
        "array": not inputs.is_text,
    }
    if not fits[encoder.kind]:
        raise LearnerError(
            f"the encoder {encoder.name!r} takes {takes[encoder.kind]}, and these are {inputs}"
        )
