"""Products of small float32 matrices as LLVM vectors, for functions that numba compiles.

Numba's own loops accumulate in memory, which is three times slower. Here a tile of rows and columns
is accumulated in registers, and LLVM translates it for any processor. The code fixes the order of
every sum, so a row has the same bits whatever the other rows are.

In compiled code, a matrix is a tuple (array, offset, stride of rows). Its columns are contiguous,
and their number is a multiple of LANES.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_features = llvm.get_host_cpu_features()
LANES = 16 if _features.get("avx512f") else 8 if _features.get("avx2") else 4
_HEIGHTS = {1: 6, 2: 4, 3: 3, 4: 2} if LANES == 8 else {1: 8, 2: 8, 3: 8, 4: 6}
"""The rows of a tile by its width in vectors: as many as the registers can hold."""
WIDEST = len(_HEIGHTS)
WIDEST_SPARSE = 8 if LANES == 16 else 4
PAIR = 2
"""Sparse products skip pairs of neighbouring inputs that are both 0."""
LOOK = 64
"""Bytes of inputs that `find_pairs` looks at together."""
STORE, RELU, SLOPE, DESCEND = range(4)
"""What `multiply` does with its sums: store init + sum; store its ReLU; store the sum, or 0 where
init is not positive; store out + factor * sum."""

_FLOAT, _INT, _INT32, _BYTE = ir.FloatType(), ir.IntType(64), ir.IntType(32), ir.IntType(8)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_ZERO, _UNDEFINED = ir.Constant(_VECTOR, [0.0] * LANES), ir.Constant(_VECTOR, ir.Undefined)


class _Matrix(NamedTuple):
    array: Any
    offset: Any
    stride: Any
    step: Any = None
    """The stride of columns; None: 1."""


class _Lists(NamedTuple):
    """See `kernel.Lists`."""

    entries: Any
    values: Any
    room: Any
    pairs: Any


class _Emitter:
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
        return ir.Constant(_INT, value)

    def sum(self, *terms: Any) -> Any:
        total = terms[0]
        for term in terms[1:]:
            total = self.builder.add(total, term)
        return total

    def times(self, value: Any, factor: int) -> Any:
        return self.builder.mul(value, self.number(factor))

    def at(self, array: Any, *offsets: Any) -> Any:
        return self.builder.gep(array, [self.sum(*offsets)])

    def place(self, matrix: _Matrix, row: Any, column: Any, vector: int = 0) -> Any:
        """A pointer to a vector of a row, counted from a column."""
        start = self.builder.mul(row, matrix.stride)
        return self.at(matrix.array, matrix.offset, start, column, self.number(vector * LANES))

    def load(self, pointer: Any, kind: Any = _VECTOR) -> Any:
        align = kind.width // 8 if isinstance(kind, ir.IntType) else 4
        return self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()), align=align)

    def store(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, self.builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)

    def spread(self, scalar: Any) -> Any:
        """A vector with this number in all lanes."""
        one = self.builder.insert_element(_UNDEFINED, scalar, ir.Constant(_INT32, 0))
        lanes = ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, _UNDEFINED, lanes)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.call(f"llvm.fma.v{LANES}f32", _VECTOR, a, b, c)

    def call(self, name: str, returned: Any, *args: Any) -> Any:
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
        k = builder.phi(_INT)
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
            width = self.sum(narrow, builder.zext(builder.icmp_signed("<", k, wider), _INT))
            self.switch(width, {w: partial(body, columns[0], w) for w in range(1, most + 1)})
            return [self.sum(columns[0], self.times(width, LANES))]

        self.loop(count, tile, [self.number(0)])

    def finish(
        self, sums: list[Any], init: list[Any], out: list[Any], mode: Any, factor: Any
    ) -> None:
        """Store the sums of a tile as `mode` says."""
        builder = self.builder

        def relu(total: Any, _: Any, __: Any) -> Any:
            return builder.select(builder.fcmp_ordered("<", total, _ZERO), _ZERO, total)  # keep NaN

        def slope(total: Any, place: Any, _: Any) -> Any:
            positive = builder.fcmp_ordered(">", self.load(place), _ZERO)
            return builder.select(positive, total, _ZERO)

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
        word = self.load(self.at(lists.entries, at), _INT32)
        row = builder.zext(builder.and_(word, ir.Constant(_INT32, 0xFFFF)), _INT)
        inputs = []
        for q in range(PAIR):
            byte = builder.lshr(word, ir.Constant(_INT32, 16 + 8 * q))
            byte = builder.zext(builder.and_(byte, ir.Constant(_INT32, 0xFF)), _INT)
            inputs.append(self.spread(self.load(self.at(lists.values, byte), _FLOAT)))
        return self.sum(matrix.offset, builder.mul(row, matrix.stride), column), inputs


def _intrinsic(args: Sequence[Any], emit: Callable[..., Any], returned: Any = types.void) -> Any:
    """What an intrinsic returns to numba; `emit(emitter, *values)` writes its instructions."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        emitter = _Emitter(builder)
        pairs = zip(signature.args, values, strict=True)
        result = emit(emitter, *(emitter.unpacked(context, *pair) for pair in pairs))
        return context.get_dummy_value() if result is None else result

    return returned(*args), generate


@intrinsic
def multiply(typing, rows, vectors, depth, x, w, init, out, mode, factor):
    """out[r] = init[r] + sum over k < depth of x[r, k] * w[k], for r < rows; see STORE to DESCEND.

    `x` has a fourth number, the stride of its columns.
    """

    def emit(e, rows, vectors, depth, x, w, init, out, mode, factor):
        def columns(column, width):
            done = e.number(0)
            for height in (_HEIGHTS[width], 2, 1):
                count = e.builder.sdiv(e.builder.sub(rows, done), e.number(height))
                e.loop(count, partial(tile, column, width, height, done))
                done = e.sum(done, e.times(count, height))

        def tile(column, width, height, done, number, _):
            first = e.sum(done, e.times(number, height))
            lines = [e.sum(first, e.number(line)) for line in range(height)]
            cells = [(line, vector) for line in range(height) for vector in range(width)]
            before = [e.place(init, lines[line], column, vector) for line, vector in cells]
            after = [e.place(out, lines[line], column, vector) for line, vector in cells]
            begins = e.builder.icmp_signed("<", mode, e.number(SLOPE))
            starts = [e.builder.select(begins, e.load(place), _ZERO) for place in before]

            def add(k, sums):
                weights = [e.load(e.place(w, k, column, vector)) for vector in range(width)]
                inner = e.builder.mul(k, x.step)
                inputs = [e.spread(e.load(e.place(x, line, inner), _FLOAT)) for line in lines]
                return [
                    e.fma(inputs[line], weights[vector], total)
                    for (line, vector), total in zip(cells, sums, strict=True)
                ]

            e.finish(e.loop(depth, add, starts), before, after, mode, factor)
            return []

        e.tiles(vectors, WIDEST, columns)

    return _intrinsic((rows, vectors, depth, x, w, init, out, mode, factor), emit)


@intrinsic
def find_pairs(typing, inputs, place, looks, first, found, count):
    """Append the pairs of bytes that are not 0 to `found`; returns how many there are then.

    `found` has `count` numbers already: of the pairs, counted from `first`, and their bytes.
    """
    seen = ir.VectorType(ir.IntType(8 * PAIR), LOOK // PAIR)

    def emit(e, inputs, place, looks, first, found, count):
        builder, high = e.builder, ir.Constant(_INT32, 16)

        def look(number, counts):
            before = e.times(number, seen.count)
            start = e.at(inputs, place, e.times(before, PAIR))
            pairs = builder.load(builder.bitcast(start, seen.as_pointer()), align=1)
            marked = builder.icmp_unsigned("!=", pairs, ir.Constant(seen, [0] * seen.count))
            mask = builder.zext(builder.bitcast(marked, ir.IntType(seen.count)), _INT)
            source = builder.bitcast(start, seen.element.as_pointer())

            def append(k, masks):
                (left,) = masks
                own = builder.cttz(left, ir.Constant(ir.IntType(1), 1))
                value = builder.zext(builder.load(builder.gep(source, [own]), align=1), _INT32)
                pair = builder.shl(builder.trunc(e.sum(first, before, own), _INT32), high)
                builder.store(builder.or_(pair, value), e.at(found, counts[0], k))
                return [builder.and_(left, builder.sub(left, e.number(1)))]

            size = builder.ctpop(mask)
            e.loop(size, append, [mask])
            return [e.sum(counts[0], size)]

        return e.loop(looks, look, [count])[0]

    return _intrinsic((inputs, place, looks, first, found, count), emit, types.int64)


@intrinsic
def spread_pairs(typing, vectors, lists, begin, end, w, out):
    """out[r] += sum over the pairs of x[r, q] * w[q], for the rows r of entries begin to end."""

    def emit(e, vectors, lists, begin, end, w, out):
        def columns(column, width):
            def pair(number, _):
                first, last = (e.load(e.at(own, number), _INT) for own in (begin, end))
                with e.builder.if_then(e.builder.icmp_signed("<", first, last)):
                    inner = [e.sum(e.times(number, PAIR), e.number(q)) for q in range(PAIR)]
                    weights = [
                        [e.load(e.place(w, q, column, v)) for v in range(width)] for q in inner
                    ]
                    start = e.sum(e.builder.mul(number, lists.room), first)

                    def add(k, _):
                        row, inputs = e.entry(lists, e.sum(start, k), out, column)
                        places = [e.at(out.array, row, e.number(v * LANES)) for v in range(width)]
                        totals = [e.load(place) for place in places]
                        for q in range(PAIR):
                            pairs = zip(weights[q], totals, strict=True)
                            totals = [e.fma(inputs[q], weight, total) for weight, total in pairs]
                        for total, place in zip(totals, places, strict=True):
                            e.store(total, place)
                        return []

                    e.loop(e.builder.sub(last, first), add)
                return []

            e.loop(lists.pairs, pair)

        e.tiles(vectors, WIDEST_SPARSE, columns)

    return _intrinsic((vectors, lists, begin, end, w, out), emit)


@intrinsic
def descend_pairs(typing, vectors, lists, counts, slopes, w, factor):
    """w[q] += factor * sum over rows r of x[r, q] * slopes[r], for each pair q with entries."""

    def emit(e, vectors, lists, counts, slopes, w, factor):
        def columns(column, width):
            def pair(number, _):
                count, start = e.load(e.at(counts, number), _INT), e.builder.mul(number, lists.room)

                def add(k, sums):
                    row, inputs = e.entry(lists, e.sum(start, k), slopes, column)
                    own = [
                        e.load(e.at(slopes.array, row, e.number(v * LANES))) for v in range(width)
                    ]
                    both = [(one, slope) for one in inputs for slope in own]
                    return [e.fma(*pair, total) for pair, total in zip(both, sums, strict=True)]

                with e.builder.if_then(e.builder.icmp_signed(">", count, e.number(0))):
                    for at, total in enumerate(e.loop(count, add, [_ZERO] * (PAIR * width))):
                        inner = e.sum(e.times(number, PAIR), e.number(at // width))
                        place = e.place(w, inner, column, at % width)
                        e.store(e.fma(e.spread(factor), total, e.load(place)), place)
                return []

            e.loop(lists.pairs, pair)

        e.tiles(vectors, WIDEST_SPARSE, columns)

    return _intrinsic((vectors, lists, counts, slopes, w, factor), emit)


@intrinsic
def transpose_block(typing, source, target):
    """target[j, i] = source[i, j] for LANES x LANES numbers."""

    def emit(e, source, target):
        zero, half = e.number(0), LANES // 2
        lines = [e.load(e.place(source, e.number(line), zero)) for line in range(LANES)]
        kind = ir.VectorType(_INT32, LANES)
        low, high = (
            ir.Constant(kind, [start + i // 2 + (i % 2) * LANES for i in range(LANES)])
            for start in (0, half)
        )
        for _ in range(LANES.bit_length() - 1):
            lines = [
                e.builder.shuffle_vector(lines[i // 2], lines[i // 2 + half], (low, high)[i % 2])
                for i in range(LANES)
            ]
        for number, line in enumerate(lines):
            e.store(line, e.place(target, e.number(number), zero))

    return _intrinsic((source, target), emit)


@intrinsic
def prefetch(typing, array, offset):
    """Fetch array[offset] into the cache."""

    def emit(e, array, offset):
        pointer = e.builder.bitcast(e.at(array, offset), _BYTE.as_pointer())
        options = [ir.Constant(_INT32, value) for value in (0, 3, 1)]  # read, keep, data
        e.call("llvm.prefetch.p0", ir.VoidType(), pointer, *options)

    return _intrinsic((array, offset), emit)
