"""JSON files with a checksum: `{"format": ..., "sha256": ..., NAME: {...}}`."""

import hashlib
import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from remask.learner.errors import LearnerError, damaged
from remask.printable import printable

FORMAT = 2
_Content = TypeVar("_Content", bound=BaseModel)
_Sealed = TypeAdapter(dict[str, JsonValue])


class _Format(BaseModel):
    """What sealed files of every format, past and future, contain."""

    format: int = Field(ge=1, le=1000)


def seal(name: str, content: BaseModel) -> bytes:
    """The file of some content. Raises ValueError if it could not be read again."""
    plain = content.model_dump(mode="json")
    type(content).model_validate(plain)
    sealed = {"format": FORMAT, "sha256": _digest(plain), name: plain}
    return json.dumps(sealed, indent=1, allow_nan=False).encode() + b"\n"


def unseal(path: Path, data: bytes, name: str, kind: type[_Content], advice: str) -> _Content:
    """The content of a sealed file. Raises LearnerError if it is not as it was written."""
    try:
        written = _Format.model_validate_json(data).format
        if written != FORMAT:
            newer = written > FORMAT
            raise LearnerError(
                f"{path} was written by {'a newer' if newer else 'an older'} remask (format "
                f"{written}; this version reads format {FORMAT}). "
                f"{'Update remask' if newer else 'Create the learner again'}."
            )
        sealed = _Sealed.validate_json(data)
        content = sealed.get(name)
        if sealed.keys() != {"format", "sha256", name} or not isinstance(content, dict):
            raise damaged(path, f"it is not the JSON of a {name}", advice)
        if sealed["sha256"] != _digest(content):
            raise damaged(path, "its checksum is wrong", advice)
        return kind.model_validate(content)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = printable(".".join(map(str, problem["loc"]))[:100]) or "the file"
        raise damaged(path, f"{where}: {problem['msg']:.200}", advice) from None
    except (ValueError, RecursionError, OverflowError) as error:  # numbers that JSON cannot carry
        raise damaged(path, f"{error!s:.200}", advice) from None


def _digest(content: dict[str, JsonValue]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
