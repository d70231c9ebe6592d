"""Writes LLVM instructions on vectors of float32 numbers, for intrinsics of numba."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils

_features = llvm.get_host_cpu_features()
LANES = 16 if _features.get("avx512f") else 8 if _features.get("avx2") else 4
"""The float32 numbers of a vector."""
PAIR = 2
"""Sparse products skip pairs of neighbouring inputs that are both 0."""
STORE, RELU, SLOPE, DESCEND = range(4)
"""What a product does with its sums: store init + sum; store its ReLU; store the sum, or 0 where
init is not positive; store out + factor * sum."""
FLOAT, INT, INT32, BYTE = ir.FloatType(), ir.IntType(64), ir.IntType(32), ir.IntType(8)
VECTOR = ir.VectorType(FLOAT, LANES)
ZERO, _UNDEFINED = ir.Constant(VECTOR, [0.0] * LANES), ir.Constant(VECTOR, ir.Undefined)


class _Matrix(NamedTuple):
    array: Any
    offset: Any
    stride: Any
    step: Any = None
    """The stride of columns; None: 1."""


class _Lists(NamedTuple):
    """See `passes.Lists`."""

    entries: Any
    values: Any
    capacity: Any
    pairs: Any


class Emitter:
    """Writes LLVM instructions; numbers are 64-bit integers or floats."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def unpacked(self, context: Any, kind: Any, value: Any) -> Any:
        """An argument: a pointer for an array, a `_Matrix` for a tuple."""
        if isinstance(kind, types.Array):
            return context.make_array(kind)(context, self.builder, value).data
        if isinstance(kind, types.BaseTuple):
            parts = cgutils.unpack_tuple(self.builder, value)
            shape = _Lists if isinstance(kind, types.NamedTuple) else _Matrix
            return shape(*map(partial(self.unpacked, context), kind.types, parts))
        return value

    def number(self, value: int) -> Any:
        """An integer constant."""
        return ir.Constant(INT, value)

    def sum(self, *terms: Any) -> Any:
        """The sum of integers."""
        total = terms[0]
        for term in terms[1:]:
            total = self.builder.add(total, term)
        return total

    def times(self, value: Any, factor: int) -> Any:
        """An integer times a constant."""
        return self.builder.mul(value, self.number(factor))

    def at(self, array: Any, *offsets: Any) -> Any:
        """A pointer to an element of an array."""
        return self.builder.gep(array, [self.sum(*offsets)])

    def place(self, matrix: _Matrix, row: Any, column: Any, vector: int = 0) -> Any:
        """A pointer to a vector of a row, counted from a column."""
        start = self.builder.mul(row, matrix.stride)
        return self.at(matrix.array, matrix.offset, start, column, self.number(vector * LANES))

    def load(self, pointer: Any, kind: Any = VECTOR) -> Any:
        """Load a value of some kind."""
        align = kind.width // 8 if isinstance(kind, ir.IntType) else 4
        return self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()), align=align)

    def store(self, value: Any, pointer: Any) -> None:
        """Store a vector."""
        self.builder.store(value, self.builder.bitcast(pointer, VECTOR.as_pointer()), align=4)

    def spread(self, scalar: Any) -> Any:
        """A vector with this number in all lanes."""
        one = self.builder.insert_element(_UNDEFINED, scalar, ir.Constant(INT32, 0))
        lanes = ir.Constant(ir.VectorType(INT32, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, _UNDEFINED, lanes)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """The vector a * b + c, rounded once."""
        return self.call(f"llvm.fma.v{LANES}f32", VECTOR, a, b, c)

    def call(self, name: str, returned: Any, *args: Any) -> Any:
        """Call one of LLVM's own functions."""
        kind = ir.FunctionType(returned, [arg.type for arg in args])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, args)

    def loop(
        self, count: Any, body: Callable[[Any, list[Any]], list[Any]], starts: Sequence[Any] = ()
    ) -> list[Any]:
        """Repeat `values = body(k, values)` for k < count, from `starts`; returns the last ones."""
        builder, before = self.builder, self.builder.block
        names = ("head", "inside", "after")
        head, inside, after = (builder.append_basic_block(name) for name in names)
        builder.branch(head)
        builder.position_at_end(head)
        k = builder.phi(INT)
        k.add_incoming(self.number(0), before)
        values = [builder.phi(start.type) for start in starts]
        for value, start in zip(values, starts, strict=True):
            value.add_incoming(start, before)
        builder.cbranch(builder.icmp_signed("<", k, count), inside, after)
        builder.position_at_end(inside)
        following = body(k, values)
        k.add_incoming(builder.add(k, self.number(1)), builder.block)
        for value, new in zip(values, following, strict=True):
            value.add_incoming(new, builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        return values

    def switch(self, value: Any, cases: Mapping[int, Callable[[], None]]) -> None:
        """Run the case of an integer, if there is one."""
        builder = self.builder
        after = builder.append_basic_block("after")
        switch = builder.switch(value, after)
        for number, emit in cases.items():
            block = builder.append_basic_block(f"case{number}")
            switch.add_case(self.number(number), block)
            builder.position_at_end(block)
            emit()
            builder.branch(after)
        builder.position_at_end(after)

    def tiles(self, vectors: Any, most: int, body: Callable[[Any, int], None]) -> None:
        """Run `body(first column, width)` for tiles of at most `most` vectors, of similar width."""
        builder = self.builder
        count = builder.sdiv(self.sum(vectors, self.number(most - 1)), self.number(most))
        narrow, wider = builder.sdiv(vectors, count), builder.srem(vectors, count)

        def tile(k: Any, columns: list[Any]) -> list[Any]:
            width = self.sum(narrow, builder.zext(builder.icmp_signed("<", k, wider), INT))
            self.switch(width, {w: partial(body, columns[0], w) for w in range(1, most + 1)})
            return [self.sum(columns[0], self.times(width, LANES))]

        self.loop(count, tile, [self.number(0)])

    def finish(
        self, sums: list[Any], init: list[Any], out: list[Any], mode: Any, factor: Any
    ) -> None:
        """Store the sums of a tile as `mode` says."""
        builder = self.builder

        def relu(total: Any, _: Any, __: Any) -> Any:
            return builder.select(builder.fcmp_ordered("<", total, ZERO), ZERO, total)  # keep NaN

        def slope(total: Any, place: Any, _: Any) -> Any:
            positive = builder.fcmp_ordered(">", self.load(place), ZERO)
            return builder.select(positive, total, ZERO)

        def descend(total: Any, _: Any, place: Any) -> Any:
            return self.fma(self.spread(factor), total, self.load(place))

        def store(change: Callable[[Any, Any, Any], Any]) -> None:
            for total, before, place in zip(sums, init, out, strict=True):
                self.store(change(total, before, place), place)

        changes = {STORE: lambda t, *_: t, RELU: relu, SLOPE: slope, DESCEND: descend}
        self.switch(mode, {number: partial(store, change) for number, change in changes.items()})

    def entry(self, lists: Any, at: Any, matrix: _Matrix, column: Any) -> tuple[Any, list[Any]]:
        """Where the row of an entry of a list begins, and its inputs, each as a vector."""
        builder = self.builder
        word = self.load(self.at(lists.entries, at), INT32)
        row = builder.zext(builder.and_(word, ir.Constant(INT32, 0xFFFF)), INT)
        inputs = []
        for q in range(PAIR):
            byte = builder.lshr(word, ir.Constant(INT32, 16 + 8 * q))
            byte = builder.zext(builder.and_(byte, ir.Constant(INT32, 0xFF)), INT)
            inputs.append(self.spread(self.load(self.at(lists.values, byte), FLOAT)))
        return self.sum(matrix.offset, builder.mul(row, matrix.stride), column), inputs


def instructions(args: Sequence[Any], emit: Callable[..., Any], returned: Any = types.void) -> Any:
    """What an intrinsic returns to numba; `emit(emitter, *values)` writes its instructions."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        emitter = Emitter(builder)
        pairs = zip(signature.args, values, strict=True)
        result = emit(emitter, *(emitter.unpacked(context, *pair) for pair in pairs))
        return context.get_dummy_value() if result is None else result

    return returned(*args), generate
