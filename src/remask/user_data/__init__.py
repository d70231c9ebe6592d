"""Reading users' data: image files, arrays, datasets and texts, for the learner and benchmarks."""

from remask.user_data.arrays import ArraySource, as_bytes_or_floats, item_to_array
from remask.user_data.class_names import Labels, checked_name, class_name, in_order
from remask.user_data.formats import InputFormat
from remask.user_data.images import ENDINGS, ImageSource, Listing, list_classes
from remask.user_data.reading import Data, read
from remask.user_data.skipping import (
    SKIP_UNREADABLE,
    Skipped,
    Unreadable,
    UnreadableImageWarning,
)
from remask.user_data.source import Source, sample_bytes
from remask.user_data.texts import TextFile, TextSource

__all__ = [
    "ENDINGS",
    "SKIP_UNREADABLE",
    "ArraySource",
    "Data",
    "ImageSource",
    "InputFormat",
    "Labels",
    "Listing",
    "Skipped",
    "Source",
    "TextFile",
    "TextSource",
    "Unreadable",
    "UnreadableImageWarning",
    "as_bytes_or_floats",
    "checked_name",
    "class_name",
    "in_order",
    "item_to_array",
    "list_classes",
    "read",
    "sample_bytes",
]
