"""Reading a pickle of plain values without unpickling it, so that it cannot run code.

A pickle is a program for a machine with a stack, and can make that machine import and call
anything. `pickletools` takes the program apart, running nothing. The machine here knows only the
instructions that Python 2 wrote for dicts, lists, tuples, strings, numbers and matrices of bytes
(protocol 2), and refuses all others. The three names that a matrix is written with are compared as
text: nothing is ever imported, looked up or called.
"""

import pickletools
import warnings
from dataclasses import dataclass
from enum import Enum
from itertools import islice
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


@dataclass(eq=False)
class _Matrix:
    """Stands for a matrix, which is announced first and filled later."""

    array: npt.NDArray[np.uint8] | None = None


class _Refusal(Exception):  # noqa: N818 - the reason alone, until it is known where
    """Why a pickle is not one of plain values."""


def plain_data(data: bytes, most: int) -> dict[str, Any]:
    """Read a dict of plain values; strings are decoded as Latin-1, and matrices are [N, D].

    `most` is how many instructions there may be: a few bytes of them can fill a lot of memory.
    Raises WrongContentsError.
    """
    machine, at = _Machine(data), 0
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd texts, before they are refused
            for instruction, argument, place in islice(pickletools.genops(data), most):
                at = place or 0
                machine.step(instruction.name, argument, at)
        return machine.result(at)
    except (_Refusal, ValueError) as error:  # the latter from pickletools
        reason = repr(str(error)[:150])
        raise WrongContentsError(f"not a pickle of plain data: {reason}, at byte {at}") from error


class _Machine:
    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        """The stacks as they were at each mark that is still open."""
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any, at: int) -> None:
        match name:
            case "PROTO" if argument == 2:
                pass
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                self._push({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "BININT1" | "BININT2" | "BININT" | "LONG1" | "SHORT_BINSTRING":
                self._push(argument)
            case "BINSTRING":  # stays where it is, after its length: it may be large
                self._push(self._data[at + 5 : at + 5 + len(argument)])
            case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
                self._push({"DICT": dict, "LIST": list, "TUPLE": tuple}[name[6:]]())
            case "MARK":
                self._below.append(self._stack)
                self._stack = []
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self._push(tuple(reversed([self._pop() for _ in range(int(name[5:]))])))
            case "TUPLE":
                self._push(tuple(self._since_mark()))
            case "APPEND":
                self._extend([self._pop()])
            case "APPENDS":
                self._extend(self._since_mark())
            case "SETITEM":
                value, key = self._pop(), self._pop()
                self._update([key, value])
            case "SETITEMS":
                self._update(self._since_mark())
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = self._last(object)
            case "BINGET" | "LONG_BINGET" if argument in self._memo:
                self._push(self._memo[argument])
            case "GLOBAL" if argument in {known.value for known in _Name}:
                self._push(_Name(argument))
            case "REDUCE":
                self._announce()
            case "BUILD":
                self._fill()
            case "STOP":
                pass  # `result` looks at what is left
            case _:
                raise _Refusal(f"{name} {argument!r:.80} has no place in it")

    def result(self, at: int) -> dict[str, Any]:
        """What is left in the end, if that is a dict, and the end is where it should be."""
        stopped = self._data[at] == ord(".") and at + 1 == len(self._data)
        if len(self._stack) != 1 or self._below or not stopped:
            raise _Refusal("it does not end where it should")
        return {
            key: value.array if isinstance(value, _Matrix) else value
            for key, value in self._last(dict).items()
        }

    def _announce(self) -> None:
        arguments, name = self._pop(), self._pop()
        match name, arguments:
            case _Name.RECONSTRUCT, (_Name.ARRAY, (0,), "b"):
                self._push(_Matrix())
            case _Name.TYPE, ("u1", 0, 1):
                self._push(_Bytes())
            case _:
                raise _Refusal("it makes something other than a matrix of bytes")

    def _fill(self) -> None:
        state, target = self._pop(), self._last(object)
        match target, state:
            case _Bytes(), (int(), "|", None, None, None, int(), int(), int()):
                pass  # of bytes there is one kind only
            case (
                _Matrix(array=None),
                (1, (int(rows), int(columns)), _Bytes(), bool(by_column), memoryview() as content),
            ) if rows >= 0 and columns >= 0 and rows * columns == len(content):
                flat = np.frombuffer(content, np.uint8)
                target.array = flat.reshape(rows, columns, order="F" if by_column else "C")
            case _:
                raise _Refusal("its matrix is not one of bytes, or contradicts itself")

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack:
            raise _Refusal("it takes more than it has")
        return self._stack.pop()

    def _last(self, kind: type[Value]) -> Value:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise _Refusal("its values do not fit together")
        return self._stack[-1]

    def _since_mark(self) -> list[Any]:
        if not self._below:
            raise _Refusal("it takes more than it has")
        values, self._stack = self._stack, self._below.pop()
        return values

    def _extend(self, values: list[Any]) -> None:
        self._last(list).extend(values)

    def _update(self, items: list[Any]) -> None:
        target, keys = self._last(dict), items[::2]
        if len(items) % 2 or not all(isinstance(key, str) for key in keys):
            raise _Refusal("the keys of its dict are not strings")
        target.update(zip(keys, items[1::2], strict=True))
