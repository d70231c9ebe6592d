"""Reading users' data: image files, arrays, datasets and texts, for the learner and benchmarks."""

from remask.user_data.arrays import ArrayReader
from remask.user_data.images import ENDINGS, ImageReader, Listing, list_classes
from remask.user_data.reading import Data, read
from remask.user_data.samples import (
    SKIP_UNREADABLE,
    InputFormat,
    Labels,
    SampleReader,
    Skipped,
    Unreadable,
    UnreadableImageWarning,
    checked_name,
    class_name,
    class_names,
    in_order,
    sample_bytes,
)
from remask.user_data.texts import TextFile, TextReader

__all__ = [
    "ENDINGS",
    "SKIP_UNREADABLE",
    "ArrayReader",
    "Data",
    "ImageReader",
    "InputFormat",
    "Labels",
    "Listing",
    "SampleReader",
    "Skipped",
    "TextFile",
    "TextReader",
    "Unreadable",
    "UnreadableImageWarning",
    "checked_name",
    "class_name",
    "class_names",
    "in_order",
    "list_classes",
    "read",
    "sample_bytes",
]
