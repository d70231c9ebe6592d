"""The format of inputs: their shape and type."""

import math
from typing import Annotated, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

_TENSORS = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}
_MOST_VALUES = 1 << 28

_MOST_VALUES = 1 << 28  # of one input


class InputFormat(BaseModel):
    """Shape and type of one input. The first visit of a learner fixes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    shape: tuple[Annotated[int, Field(ge=1, le=_MOST_VALUES)], ...] = Field(
        min_length=1, max_length=3
    )
    """(channels, height, width), (features,), (length,) of token ids, or (1,) for a text."""
    dtype: Literal["uint8", "float32", "int64", "text"]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if math.prod(self.shape) > _MOST_VALUES:
            raise ValueError(f"an input has at most {_MOST_VALUES} values, not {self.shape}")
        return self

    @property
    def is_image(self) -> bool:
        """Whether an input has channels, height and width."""
        return len(self.shape) == 3

    @property
    def is_text(self) -> bool:
        """Whether an input is a string."""
        return self.dtype == "text"

    @property
    def tensor_type(self) -> torch.dtype:
        """The type of a tensor of inputs that are not texts."""
        return _TENSORS[self.dtype]

    @property
    def sample_bytes(self) -> int:
        """The size of one input that is not a text."""
        return math.prod(self.shape) * self.tensor_type.itemsize

    def __str__(self) -> str:
        if self.is_text:
            return "texts"
        if self.is_image:
            channels, height, width = self.shape
            return f"{channels} channels of {height} x {width} pixels, {self.dtype}"
        return (
            f"{self.shape[0]} {'integers' if self.dtype == 'int64' else 'features'}, {self.dtype}"
        )
