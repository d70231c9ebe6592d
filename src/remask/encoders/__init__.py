"""Frozen pretrained networks that turn photographs or texts into features.

    encoder = find_encoder("efficientnet-lite0")
    features = encoder.encode(photographs)  # uint8 [B, 3, H, W] -> float32 [B, 1280]

`known_encoders` lists them without importing torch.
"""

from typing import TYPE_CHECKING

from remask.lazy_names import lazy_names

if TYPE_CHECKING:
    from remask.encoders.catalogue import (
        EncoderError,
        EncoderInfo,
        default_encoder,
        known_encoders,
    )
    from remask.encoders.encoder import Encoder
    from remask.encoders.finding import find_encoder

__all__ = [
    "Encoder",
    "EncoderError",
    "EncoderInfo",
    "default_encoder",
    "find_encoder",
    "known_encoders",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "catalogue": "EncoderError EncoderInfo default_encoder known_encoders",
            "encoder": "Encoder",
            "finding": "find_encoder",
        },
    )
