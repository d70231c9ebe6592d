"""Data: datasets and their fetching, benchmarks, users' own data, tasks and their samples."""

from typing import TYPE_CHECKING

from remask.errors import DataError
from remask.lazy_names import lazy_names

if TYPE_CHECKING:
    from remask.data.readers import UnreadableImageWarning
    from remask.data.user_data import arrays, from_dataset, image_folder

__all__ = ["DataError", "UnreadableImageWarning", "arrays", "from_dataset", "image_folder"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "readers": "UnreadableImageWarning",
            "user_data": "arrays from_dataset image_folder",
        },
    )
