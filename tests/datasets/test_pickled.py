"""Pickles of plain data are read without the pickle module, and no others."""

import base64
import pickle
import pickletools
import random
import tracemalloc
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remask.datasets.files import WrongContentsError
from remask.datasets.pickled import plain_data
from tests.datasets.python2_pickles import (
    BYTES,
    EMPTY_ARRAY,
    NDARRAY,
    PROTOCOL,
    RECONSTRUCT,
    filled,
    matrix,
    pickled,
    written,
)
from tests.payload import Payload

pytestmark = pytest.mark.usefixtures("nothing_is_executed")

MOST = 2000
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
    found = plain_data(zlib.decompress(base64.b64decode(text)), MOST)
    assert found.keys() == {"data", "labels", "batch_label", "filenames"}
    np.testing.assert_array_equal(found["data"], PIXELS)
    assert found["labels"] == [6, 9, 9]
    assert found["batch_label"] == "training batch 1 of 5"
    assert found["filenames"][2] == "leptodactylus_pentadactylus_s_000002.png"


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.binary(max_size=255),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.tuples() | st.tuples(inner),
    max_leaves=20,
)


@given(st.dictionaries(st.binary(max_size=20), plain, max_size=5))
def test_plain_values_are_read_as_the_pickle_module_reads_them(values: dict[bytes, Any]) -> None:
    data = pickled(values)
    wanted = pickle.loads(data, encoding="latin-1")
    assert wanted.keys() == {key.decode("latin-1") for key in values}
    assert plain_data(data, MOST) == wanted


def whole(body: bytes) -> bytes:
    """A file whose dict has one entry, which the body leaves on the stack."""
    return PROTOCOL + b"}U\x01a" + body + b"s."


def called(module: str, name: str, arguments: bytes = b"U\x0ctouch executed\x85") -> bytes:
    return f"c{module}\n{name}\n".encode() + arguments + b"R"


FIELDS = BYTES.replace(b"|NNN", b"|N(U\x01xt}")
SIX = b"T\x06\x00\x00\x00abcdef"
LAUGHS = b"]q\x00" + b"".join(
    b"(" + b"h" + bytes([level]) + (b"h" + bytes([level])) * 9 + b"tq" + bytes([level + 1])
    for level in range(60)
)

REFUSED = {
    **{f"payload, protocol {p}": pickle.dumps(Payload(), p) for p in range(6)},
    "os.system": whole(called("os", "system")),
    "posix.system": whole(called("posix", "system")),
    "subprocess.Popen": whole(called("subprocess", "Popen")),
    "builtins.eval": whole(called("builtins", "eval", b"U\x14open('executed','w')\x85")),
    "__builtin__.eval": whole(called("__builtin__", "eval", b"U\x14open('executed','w')\x85")),
    "builtins.getattr": whole(called("builtins", "getattr", b"U\x01aU\x01b\x86")),
    "name alone": whole(b"cos\nsystem\n"),
    "name of numpy that runs code": whole(called("numpy", "load")),
    "name of numpy.testing": whole(called("numpy.testing._private.utils", "runstring")),
    "name with dots": whole(called("numpy", "dtype.__init__.__globals__")),
    "name with a line break": whole(b"cnumpy\r\ndtype\r\n"),
    "name without an end": PROTOCOL + b"c" + b"a" * 10_000,
    "instance, old style": whole(b"(U\x0ctouch executedios\nsystem\n"),
    "object, old style": whole(b"(cos\nsystem\nU\x0ctouch executedo"),
    "new object": whole(b"cnumpy\ndtype\nU\x02u1\x85\x81"),
    "name from the stack": whole(b"U\x02osU\x06system\x93U\x01x\x85R"),
    "extension": whole(b"\x82\x01"),
    "persistent id": whole(b"Pexecuted\n"),
    "persistent id from the stack": whole(b"U\x08executedQ"),
    "call of a string": whole(b"U\x09os.systemU\x01x\x85R"),
    "call of a matrix": whole(matrix(PIXELS) + b"U\x01x\x85R"),
    "call of a tuple": whole(b"))R"),
    "fill a dict": PROTOCOL + b"}}U\x01aK\x01sb.",
    "fill a list": whole(b"]}b"),
    "fill a name": whole(NDARRAY + b"}b"),
    "fill a type with a dict": whole(BYTES + b"}U\x04typeU\x01OsbK\x00"),
    "array of objects": whole(filled((1, 6), BYTES.replace(b"u1", b"O8"), False, SIX)),
    "array of texts": whole(filled((1, 6), BYTES.replace(b"u1", b"S1"), False, SIX)),
    "array of records": whole(filled((1, 6), FIELDS, False, SIX)),
    "array of lists": whole(filled((1, 2), BYTES, False, b"]")),
    "array of another class": whole(RECONSTRUCT + b"cnumpy\ndtype\nK\x00\x85U\x01b\x87R"),
    "array of a class of its own": whole(RECONSTRUCT + b"cos\n_wrap_close\nK\x00\x85U\x01b\x87R"),
    "array of another shape": whole(RECONSTRUCT + NDARRAY + b"J\xff\xff\xff\x7f\x85U\x01b\x87R"),
    "array that is too small": whole(filled((3, 2), BYTES, False, b"T\x05\x00\x00\x00abcde")),
    "array that is too large": whole(filled((1, 5), BYTES, False, SIX)),
    "huge array": whole(filled((2**31 - 1, 2**31 - 1), BYTES, False, SIX)),
    "array whose size wraps": whole(filled((2**63, 2), BYTES, False, SIX)),
    "array of negative shape": whole(filled((-2, -3), BYTES, False, SIX)),
    "array of one negative side": whole(filled((6, -1), BYTES, False, SIX)),
    "array of one axis": whole(filled((6,), BYTES, False, SIX)),
    "array of three axes": whole(filled((1, 2, 3), BYTES, False, SIX)),
    "array without a type": whole(filled((1, 6), b"N", False, SIX)),
    "array with a name for a type": whole(filled((1, 6), b"cnumpy\ndtype\n", False, SIX)),
    "array of a short string": whole(filled((1, 2), BYTES, False, b"U\x02ab")),
    "array filled twice": whole(
        matrix(PIXELS) + b"(K\x01" + written((1, 6)) + BYTES + b"\x89" + SIX + b"tb"
    ),
    "array in itself": whole(
        EMPTY_ARRAY + b"q\x09(K\x01" + written((1, 6)) + b"h\x09\x89" + SIX + b"tb"
    ),
    "protocol 0": b"(dp0\nS'a'\np1\nI1\ns.",
    "protocol 3": b"\x80\x03}.",
    "protocol 5 with a frame": pickle.dumps({"a": 1}, 5),
    "list": PROTOCOL + b"].",
    "nothing": b"",
    "zeros": bytes(100),
    "no end": PROTOCOL + b"}",
    "bytes after the end": PROTOCOL + b"}.}",
    "a second pickle after the end": PROTOCOL + b"}." + pickle.dumps(Payload(), 2),
    "two values": PROTOCOL + b"}}.",
    "an open mark": PROTOCOL + b"(}.",
    "end without a value": PROTOCOL + b".",
    "recall of nothing": whole(b"h\x07"),
    "recall of nothing, far away": whole(b"j\xff\xff\xff\xff"),
    "remember nothing": PROTOCOL + b"q\x00}.",
    "tuple of too many": PROTOCOL + b"}K\x01\x87.",
    "tuple without a mark": PROTOCOL + b"}t.",
    "take below a mark": PROTOCOL + b"}U\x01aK\x01(su.",
    "append to a dict": PROTOCOL + b"}K\x01a.",
    "append to a string": whole(b"U\x01a(K\x01e"),
    "item of a list": whole(b"]U\x01aK\x01s"),
    "odd items": PROTOCOL + b"}(U\x01au.",
    "key that is a number": PROTOCOL + b"}K\x01K\x01s.",
    "key that is a list": PROTOCOL + b"}]K\x01s.",
    "key that is a tuple of tuples": PROTOCOL + LAUGHS + b"}h\x3cK\x01s.",
    "string longer than the file": whole(b"T\xff\xff\xff\x7fabc"),
    "string of negative length": whole(b"T\xff\xff\xff\xffabc"),
    "number longer than the file": whole(b"\x8a\xff\x01"),
    "number in text": whole(b"I" + b"9" * 5000 + b"\n"),
    "unicode": whole(b"X\x01\x00\x00\x00a"),
    "pop": whole(b"K\x01K\x010"),
    "duplicate": whole(b"K\x012"),
    "very many values": PROTOCOL + b"]" * 4_000_000,
    "very many marks": PROTOCOL + b"(" * 4_000_000,
    "very many tuples in tuples": PROTOCOL + b")" + b"\x85" * 4_000_000,
}  # fmt: skip


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused_without_running_it_or_taking_memory(data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(WrongContentsError) as caught:
        plain_data(data, MOST)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_the_payload_would_do_harm_if_it_were_unpickled() -> None:
    assert not Path("executed").exists()
    pickle.loads(REFUSED["payload, protocol 2"]).close()
    assert Path("executed").exists()
    Path("executed").unlink()


def test_lists_that_hold_themselves_and_tuples_of_tuples_do_no_harm() -> None:
    itself = plain_data(whole(b"]q\x00h\x00a"), MOST)["a"]
    assert itself[0] is itself
    levels = plain_data(whole(b"(" + LAUGHS + b"t"), MOST)["a"]
    assert len(levels) == 61  # the last of them holds the list 10 ** 60 times
    assert levels[2][9] is levels[1]


@pytest.mark.thorough
def test_a_file_with_any_byte_changed_is_read_or_refused_and_nothing_else_happens() -> None:
    data = pickled(
        {b"labels": [1, 2], b"data": PIXELS[:2, :20], b"names": [b"a", b"b"], b"x": (1,)}
    )
    chosen = random.Random(5)
    answers = Counter[str]()
    for _ in range(20_000):
        spoilt = bytearray(data)
        for _ in range(chosen.randint(1, 3)):
            spoilt[chosen.randrange(len(spoilt))] = chosen.randrange(256)
        try:
            found = plain_data(bytes(spoilt[: chosen.randrange(len(data) * 2)]), MOST)
        except WrongContentsError:
            answers["refused"] += 1
        else:
            assert type(found) is dict
            answers["read"] += 1
    assert min(answers["refused"], answers["read"]) > 1000  # both happen, and often
    assert not Path("executed").exists()


def test_the_pickles_made_here_are_well_formed() -> None:
    """Otherwise the files above might be refused for another reason than theirs."""
    data = pickled({b"data": PIXELS, b"labels": list(range(2000))})
    assert max(opcode.proto for opcode, _, _ in pickletools.genops(data)) == 2
    found = plain_data(data, 5000)
    np.testing.assert_array_equal(found["data"], PIXELS)
    assert found["labels"] == list(range(2000))
