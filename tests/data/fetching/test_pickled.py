"""Pickles of plain data are read; others are refused and cannot run code."""

import base64
import pickle
import zlib

import numpy as np
import pytest

from remask.data.published import plain_data
from remask.data.sources import WrongContentsError
from tests.data.fetching.python2_pickles import (
    BYTES,
    PROTOCOL,
    RECONSTRUCT,
    filled,
)
from tests.payload import Payload

pytestmark = pytest.mark.usefixtures("nothing_is_executed")

PIXELS = (np.arange(3 * 3072).reshape(3, 3072) // 64).astype(np.uint8)

# What cPickle of Python 2.7.18 wrote of PIXELS of numpy 1.16.6, three labels and three names.
BY_PYTHON_2 = (
    "eNql2WlT01AUgOGkLYWmZXHBfamKGrdqUdwV94VIVSTutSZpWqppmpvcqFVQXABx/cnKFMfPzLzPhztz7nn/wZlNzAhVN1NVS1oi"
    "4fhxM2gXnFboFpqxJxtWGFptrRK6TsuPZBg7UhPJ5Urzq8tbkTKUOVO1FyZEl26oRnJcyc3/a6qyHbiaSJuJuGgohrrUdOtG0lSn"
    "S6XS2J8lncdQpL04qQwpmAoloCSUgrqgNNQN9UAZSIOyUA7qhfqgfmgAWgWthtZAa6FBaB20HtoAbYQ2QZuhLdBWaBu0HcpDO6Cd"
    "0C5oCNoN7YH2Qjq0D9oPHYAOQoegAnQYOgIVoWHoKHQMGoGOQyegk9Ap6DR0BjoLnYPOQ6PQBegidAm6DF2BrkLXoOvQDegmNAYZ"
    "0C1oHCpBt6E70F1oAroHTUImdB96AD2EHkGPoSfQU6gMPYMq0HPIgmzIgaqQC9WgOjQFNaAX0EvIg5qQD7WgABJQCEWQhGLoFfQa"
    "egO1obfQO2gamoHeQx+gWegj9An6DH2B5qB5aAH6Ci1C36Dv0A/oJ/QL+g1J20x7lu16kegpi4xupI2MkXHNrG1JZ6rSWQnNHJSh"
    "1fAbfj3f+c8X861afkRkzUyt4bm+1XQjkSuLXt3UPTeQrarlyLYXR5XA9aX1f4oqy1eDQuDXRd+K2mKn7V9RO9xpB9y48BfLUYug"
)


def test_what_python_2_wrote_is_read() -> None:
    found = plain_data(zlib.decompress(base64.b64decode(BY_PYTHON_2)), "file")
    assert found.keys() == {"data", "labels", "batch_label", "filenames"}
    np.testing.assert_array_equal(found["data"], PIXELS)
    assert found["labels"] == [6, 9, 9]
    assert found["batch_label"] == b"training batch 1 of 5"
    assert found["filenames"][2] == b"leptodactylus_pentadactylus_s_000002.png"


def whole(body: bytes) -> bytes:
    """A file whose dict has one entry, which the body leaves on the stack."""
    return PROTOCOL + b"}U\x01a" + body + b"s."


def called(module: str, name: str, arguments: bytes = b"U\x0ctouch executed\x85") -> bytes:
    return f"c{module}\n{name}\n".encode() + arguments + b"R"


SIX = b"T\x06\x00\x00\x00abcdef"

REFUSED = {
    **{f"payload, protocol {p}": pickle.dumps(Payload(), p) for p in range(6)},
    "os.system": whole(called("os", "system")),
    "builtins.eval": whole(called("builtins", "eval", b"U\x14open('executed','w')\x85")),
    "name alone": whole(b"cos\nsystem\n"),
    "name of numpy that runs code": whole(called("numpy", "load")),
    "name of numpy.testing": whole(called("numpy.testing._private.utils", "runstring")),
    "object, old style": whole(b"(cos\nsystem\nU\x0ctouch executedo"),
    "name from the stack": whole(b"U\x02osU\x06system\x93U\x01x\x85R"),
    "extension": whole(b"\x82\x01"),
    "call of a string": whole(b"U\x09os.systemU\x01x\x85R"),
    "array of objects": whole(filled((1, 6), BYTES.replace(b"u1", b"O8"), SIX)),
    "array of another class": whole(RECONSTRUCT + b"cnumpy\ndtype\nK\x00\x85U\x01b\x87R"),
    "array that is too small": whole(filled((3, 2), BYTES, b"T\x05\x00\x00\x00abcde")),
    "array that is too large": whole(filled((1, 5), BYTES, SIX)),
    "list": PROTOCOL + b"].",
    "no end": PROTOCOL + b"}",
    "string longer than the file": whole(b"T\xff\xff\xff\x7fabc"),
}  # fmt: skip


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused_without_running_it(data: bytes) -> None:
    with pytest.raises(WrongContentsError) as caught:
        plain_data(data, "file")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
