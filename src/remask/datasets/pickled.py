"""Reading a pickle of plain values without the pickle module, so that it cannot run code.

A pickle is a program for a machine with a stack, and can make that machine import and call
anything. The machine here knows only the instructions that Python 2 wrote for dicts, lists, tuples,
strings, numbers and matrices of bytes (protocol 2), and refuses all others. The three names that a
matrix is written with are compared as text: nothing is ever imported, looked up or called.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from remask.datasets.files import WrongContentsError

Value = TypeVar("Value")


class _Name(Enum):
    """What stands for a name of numpy."""

    RECONSTRUCT = "numpy.core.multiarray _reconstruct"
    ARRAY = "numpy ndarray"
    TYPE = "numpy dtype"


class _Bytes:
    """Stands for numpy's type of bytes."""


class _Matrix:
    """Stands for a matrix, which is announced first and filled later."""

    array: npt.NDArray[np.uint8] | None = None


def plain_data(data: bytes, most: int) -> dict[str, Any]:
    """Read a dict of plain values; strings are decoded as Latin-1, and matrices are [N, D].

    `most` is how many instructions there may be: a few bytes of them can fill a lot of memory.
    Raises WrongContentsError.
    """
    value = _Machine(data).run(most)
    if not isinstance(value, dict):
        raise WrongContentsError("not a pickle of a dict")
    return {
        key: content.array if isinstance(content, _Matrix) else content
        for key, content in value.items()
    }


class _Machine:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = memoryview(data), 0
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        """The stacks as they were at each mark that is still open."""
        self._memo: dict[int, Any] = {}

    def run(self, most: int) -> Any:
        for _ in range(most):
            instruction = bytes(self._take(1))
            if instruction == b".":
                if len(self._stack) != 1 or self._below or self._at != len(self._data):
                    raise self._refusal("it does not end where it should")
                return self._stack[0]
            if instruction not in _INSTRUCTIONS:
                raise self._refusal(f"instruction {instruction!r} has no place in plain data")
            _INSTRUCTIONS[instruction](self)
        raise self._refusal(f"it has more than {most} instructions")

    def protocol(self) -> None:
        if self._number(1) != 2:
            raise self._refusal("it is not of protocol 2")

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def integer(self, size: int, *, signed: bool = False) -> None:
        self.push(self._number(size, signed=signed))

    def long_integer(self) -> None:
        self.integer(self._number(1), signed=True)

    def short_string(self) -> None:
        self.push(str(self._take(self._number(1)), "latin-1"))

    def string(self) -> None:
        self.push(self._take(self._number(4, signed=True)))  # stays where it is: it may be large

    def name(self) -> None:
        text = f"{self._line()} {self._line()}"
        try:
            self.push(_Name(text))
        except ValueError:
            raise self._refusal(f"it asks for {text[:100]!r}") from None

    def remember(self, size: int) -> None:
        self._memo[self._number(size)] = self._last(object)

    def recall(self, size: int) -> None:
        number = self._number(size)
        if number not in self._memo:
            raise self._refusal("it recalls what it never had")
        self.push(self._memo[number])

    def mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def make_tuple(self, size: int) -> None:
        values = [self._pop() for _ in range(size)]
        self.push(tuple(reversed(values)))

    def make_marked_tuple(self) -> None:
        self.push(tuple(self._since_mark()))

    def append(self) -> None:
        self._extend([self._pop()])

    def extend(self) -> None:
        self._extend(self._since_mark())

    def set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._update([key, value])

    def set_items(self) -> None:
        self._update(self._since_mark())

    def announce(self) -> None:
        arguments, name = self._pop(), self._pop()
        match name, arguments:
            case _Name.RECONSTRUCT, (_Name.ARRAY, (0,), "b"):
                self.push(_Matrix())
            case _Name.TYPE, ("u1", 0, 1):
                self.push(_Bytes())
            case _:
                raise self._refusal("it makes something other than a matrix of bytes")

    def fill(self) -> None:
        state, target = self._pop(), self._last(object)
        match target, state:
            case _Bytes(), (int(), "|", None, None, None, int(), int(), int()):
                pass  # of bytes there is one kind only
            case (
                _Matrix(array=None),
                (1, (int(rows), int(columns)), _Bytes(), bool(by_column), memoryview() as content),
            ) if rows >= 0 and columns >= 0 and rows * columns == len(content):
                order: Any = "F" if by_column else "C"
                flat = np.frombuffer(content, np.uint8)
                target.array = flat.reshape(rows, columns, order=order)
            case _:
                raise self._refusal("its matrix is not one of bytes, or contradicts itself")

    def _take(self, size: int) -> memoryview:
        if not 0 <= size <= len(self._data) - self._at:
            raise self._refusal("it ends early")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._take(size), "little", signed=signed)

    def _line(self) -> str:
        start = self._at
        while self._number(1) != ord("\n"):
            if self._at - start > 100:
                raise self._refusal("it asks for a name that is too long")
        return str(self._data[start : self._at - 1], "latin-1")

    def _pop(self) -> Any:
        if not self._stack:
            raise self._refusal("it takes more than it has")
        return self._stack.pop()

    def _last(self, kind: type[Value]) -> Value:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise self._refusal("its values do not fit together")
        return self._stack[-1]

    def _since_mark(self) -> list[Any]:
        if not self._below:
            raise self._refusal("it takes more than it has")
        values, self._stack = self._stack, self._below.pop()
        return values

    def _extend(self, values: list[Any]) -> None:
        self._last(list).extend(values)

    def _update(self, items: list[Any]) -> None:
        target, keys = self._last(dict), items[::2]
        if len(items) % 2 or not all(isinstance(key, str) for key in keys):
            raise self._refusal("the keys of its dict are not strings")
        target.update(zip(keys, items[1::2], strict=True))

    def _refusal(self, reason: str) -> WrongContentsError:
        return WrongContentsError(f"not a pickle of plain data: {reason}, at byte {self._at}")


_INSTRUCTIONS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _Machine.protocol,
    b"N": lambda machine: machine.push(None),
    b"\x88": lambda machine: machine.push(True),
    b"\x89": lambda machine: machine.push(False),
    b"K": lambda machine: machine.integer(1),
    b"M": lambda machine: machine.integer(2),
    b"J": lambda machine: machine.integer(4, signed=True),
    b"\x8a": _Machine.long_integer,
    b"U": _Machine.short_string,
    b"T": _Machine.string,
    b"}": lambda machine: machine.push({}),
    b"]": lambda machine: machine.push([]),
    b")": lambda machine: machine.push(()),
    b"\x85": lambda machine: machine.make_tuple(1),
    b"\x86": lambda machine: machine.make_tuple(2),
    b"\x87": lambda machine: machine.make_tuple(3),
    b"(": _Machine.mark,
    b"t": _Machine.make_marked_tuple,
    b"a": _Machine.append,
    b"e": _Machine.extend,
    b"s": _Machine.set_item,
    b"u": _Machine.set_items,
    b"q": lambda machine: machine.remember(1),
    b"r": lambda machine: machine.remember(4),
    b"h": lambda machine: machine.recall(1),
    b"j": lambda machine: machine.recall(4),
    b"c": _Machine.name,
    b"R": _Machine.announce,
    b"b": _Machine.fill,
}
