"""Pickles of plain data are read; others are refused and cannot run code."""

import base64
import pickle
import zlib
from pathlib import Path

import numpy as np
import pytest

from remask.data.published import plain_data
from remask.data.sources import WrongContentsError
from tests.data.fetching.python2_pickles import (
    BYTES,
    PROTOCOL,
    RECONSTRUCT,
    filled,
    matrix,
)
from tests.payload import Payload

pytestmark = pytest.mark.usefixtures("nothing_is_executed")

PIXELS = (np.arange(3 * 3072).reshape(3, 3072) // 64).astype(np.uint8)

# What cPickle of Python 2.7.18 wrote of PIXELS, as numpy 1.16.6 has them, three labels and three
# names: as they are, and with the matrix column by column and the labels of type long.
BY_PYTHON_2 = (
    "eNql2WlT01AUgOGkLYWmZXHBfamKGrdqUdwV94VIVSTutSZpWqppmpvcqFVQXABx/cnKFMfPzLzPhztz7nn/wZlNzAhVN1NVS1oi"
    "4fhxM2gXnFboFpqxJxtWGFptrRK6TsuPZBg7UhPJ5Urzq8tbkTKUOVO1FyZEl26oRnJcyc3/a6qyHbiaSJuJuGgohrrUdOtG0lSn"
    "S6XS2J8lncdQpL04qQwpmAoloCSUgrqgNNQN9UAZSIOyUA7qhfqgfmgAWgWthtZAa6FBaB20HtoAbYQ2QZuhLdBWaBu0HcpDO6Cd"
    "0C5oCNoN7YH2Qjq0D9oPHYAOQoegAnQYOgIVoWHoKHQMGoGOQyegk9Ap6DR0BjoLnYPOQ6PQBegidAm6DF2BrkLXoOvQDegmNAYZ"
    "0C1oHCpBt6E70F1oAroHTUImdB96AD2EHkGPoSfQU6gMPYMq0HPIgmzIgaqQC9WgOjQFNaAX0EvIg5qQD7WgABJQCEWQhGLoFfQa"
    "egO1obfQO2gamoHeQx+gWegj9An6DH2B5qB5aAH6Ci1C36Dv0A/oJ/QL+g1J20x7lu16kegpi4xupI2MkXHNrG1JZ6rSWQnNHJSh"
    "1fAbfj3f+c8X861afkRkzUyt4bm+1XQjkSuLXt3UPTeQrarlyLYXR5XA9aX1f4oqy1eDQuDXRd+K2mKn7V9RO9xpB9y48BfLUYug",
    "eNrVyulT00AYx/GkLYWm5fDA+wiKGq9IUbwVD7yIVEXWu8ZNsi3RNMkmGzUKigeH9fqTtRMcX/P298xndubZ57uQm+eyRgoOFZTn"
    "bD9phaluBxHTW4knXBpFNFXMiNmBH4sosYXC86uV4jurV14wpEUiW8vTvEszZCM/JVWW/jWOSEOm8CLJJVVDMuRO060ZeSLP1Wq1"
    "yT+dyR5DEtbKjDQsSdLIC2hylULLjVrQ8sdtaIUTDrSuMQateLIBrftUE1rP6VlopTMuNOXsS2jlc6+gVc570HovtKD1XfSh9Y8H"
    "0AYuhdDWXebQ1l+JoG24GkPbOCGgDV5LoG26/hra5htvoG25+Rba1lsptG2T76BtN95D23F7DtrOqXlou2ofoO2+8xGaencB2tC9"
    "T9D2TH+Gtvf+F2jDM1+h7SOL0PY/WIJ24OEyNO3RCrSDj79BO/SkDe3w0+/Qjjz7Ae1o/Sc0/fkvaMfM39CERYoetZgX8546L2lt"
    "udiWSx2MlC0q7Fkzu3KFDIqIur7rN9XsX62qQUMd42VSarge82mLxbxS570a0TwWisChtki9JDZD5gv6f4vNkWz00G/yvjW11azt"
    "X1M7mrUDLNH/Am60jF8=",
)


@pytest.mark.parametrize("text", BY_PYTHON_2, ids=["as it is", "by column, long"])
def test_what_python_2_wrote_is_read(text: str) -> None:
    found = plain_data(zlib.decompress(base64.b64decode(text)))
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
    "name with dots": whole(called("numpy", "dtype.__init__.__globals__")),
    "instance, old style": whole(b"(U\x0ctouch executedios\nsystem\n"),
    "object, old style": whole(b"(cos\nsystem\nU\x0ctouch executedo"),
    "name from the stack": whole(b"U\x02osU\x06system\x93U\x01x\x85R"),
    "extension": whole(b"\x82\x01"),
    "persistent id": whole(b"Pexecuted\n"),
    "call of a string": whole(b"U\x09os.systemU\x01x\x85R"),
    "call of a matrix": whole(matrix(PIXELS) + b"U\x01x\x85R"),
    "fill a list": whole(b"]}b"),
    "array of objects": whole(filled((1, 6), BYTES.replace(b"u1", b"O8"), SIX)),
    "array of another class": whole(RECONSTRUCT + b"cnumpy\ndtype\nK\x00\x85U\x01b\x87R"),
    "array that is too small": whole(filled((3, 2), BYTES, b"T\x05\x00\x00\x00abcde")),
    "array that is too large": whole(filled((1, 5), BYTES, SIX)),
    "array of one negative side": whole(filled((6, -1), BYTES, SIX)),
    "array without a type": whole(filled((1, 6), b"N", SIX)),
    "list": PROTOCOL + b"].",
    "nothing": b"",
    "no end": PROTOCOL + b"}",
    "recall of nothing": whole(b"h\x07"),
    "tuple of too many": PROTOCOL + b"}K\x01\x87.",
    "key that is a number": PROTOCOL + b"}K\x01K\x01s.",
    "string longer than the file": whole(b"T\xff\xff\xff\x7fabc"),
}  # fmt: skip


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused_without_running_it(data: bytes) -> None:
    with pytest.raises(WrongContentsError) as caught:
        plain_data(data)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_the_payload_would_do_harm_if_it_were_unpickled() -> None:
    assert not Path("executed").exists()
    pickle.loads(REFUSED["payload, protocol 2"]).close()
    assert Path("executed").exists()
    Path("executed").unlink()
