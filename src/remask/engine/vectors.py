"""Products of small float32 matrices as LLVM vectors, for functions that numba compiles.

Numba's own loops accumulate in memory, which is three times slower. Here a tile of rows and columns
is accumulated in registers, and LLVM translates it for any processor. The code fixes the order of
every sum, so a row has the same bits whatever the other rows are.

In compiled code, a matrix is a tuple (array, offset, stride of rows). Its columns are contiguous,
and their number is a multiple of LANES.
"""

from functools import partial

from llvmlite import ir
from numba.extending import intrinsic

from remask.engine.emitter import (
    BYTE,
    FLOAT,
    INT,
    INT32,
    LANES,
    PAIR,
    SLOPE,
    ZERO,
    instructions,
)

_HEIGHTS = {1: 6, 2: 4, 3: 3, 4: 2} if LANES == 8 else {1: 8, 2: 8, 3: 8, 4: 6}
"""The rows of a tile by its width in vectors: as many as the registers can hold."""
_WIDEST = len(_HEIGHTS)
_WIDEST_SPARSE = 8 if LANES == 16 else 4


@intrinsic
def multiply(typing, rows, vectors, depth, x, w, init, out, mode, factor):
    """out[r] = init[r] + sum over k < depth of x[r, k] * w[k], for r < rows; see `emitter.STORE`.

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
            starts = [e.builder.select(begins, e.load(place), ZERO) for place in before]

            def add(k, sums):
                weights = [e.load(e.place(w, k, column, vector)) for vector in range(width)]
                inner = e.builder.mul(k, x.step)
                inputs = [e.spread(e.load(e.place(x, line, inner), FLOAT)) for line in lines]
                return [
                    e.fma(inputs[line], weights[vector], total)
                    for (line, vector), total in zip(cells, sums, strict=True)
                ]

            e.finish(e.loop(depth, add, starts), before, after, mode, factor)
            return []

        e.tiles(vectors, _WIDEST, columns)

    return instructions((rows, vectors, depth, x, w, init, out, mode, factor), emit)


@intrinsic
def spread_pairs(typing, vectors, lists, begin, end, w, out):
    """out[r] += sum over the pairs of x[r, q] * w[q], for the rows r of entries begin to end."""

    def emit(e, vectors, lists, begin, end, w, out):
        def columns(column, width):
            def pair(number, _):
                first, last = (e.load(e.at(own, number), INT) for own in (begin, end))
                with e.builder.if_then(e.builder.icmp_signed("<", first, last)):
                    inner = [e.sum(e.times(number, PAIR), e.number(q)) for q in range(PAIR)]
                    weights = [
                        [e.load(e.place(w, q, column, v)) for v in range(width)] for q in inner
                    ]
                    start = e.sum(e.builder.mul(number, lists.capacity), first)

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

        e.tiles(vectors, _WIDEST_SPARSE, columns)

    return instructions((vectors, lists, begin, end, w, out), emit)


@intrinsic
def descend_pairs(typing, vectors, lists, counts, slopes, w, factor):
    """w[q] += factor * sum over rows r of x[r, q] * slopes[r], for each pair q with entries."""

    def emit(e, vectors, lists, counts, slopes, w, factor):
        def columns(column, width):
            def pair(number, _):
                count = e.load(e.at(counts, number), INT)
                start = e.builder.mul(number, lists.capacity)

                def add(k, sums):
                    row, inputs = e.entry(lists, e.sum(start, k), slopes, column)
                    own = [
                        e.load(e.at(slopes.array, row, e.number(v * LANES))) for v in range(width)
                    ]
                    both = [(one, slope) for one in inputs for slope in own]
                    return [e.fma(*pair, total) for pair, total in zip(both, sums, strict=True)]

                with e.builder.if_then(e.builder.icmp_signed(">", count, e.number(0))):
                    for at, total in enumerate(e.loop(count, add, [ZERO] * (PAIR * width))):
                        inner = e.sum(e.times(number, PAIR), e.number(at // width))
                        place = e.place(w, inner, column, at % width)
                        e.store(e.fma(e.spread(factor), total, e.load(place)), place)
                return []

            e.loop(lists.pairs, pair)

        e.tiles(vectors, _WIDEST_SPARSE, columns)

    return instructions((vectors, lists, counts, slopes, w, factor), emit)


@intrinsic
def transpose_block(typing, source, target):
    """target[j, i] = source[i, j] for LANES x LANES numbers."""

    def emit(e, source, target):
        zero, half = e.number(0), LANES // 2
        lines = [e.load(e.place(source, e.number(line), zero)) for line in range(LANES)]
        kind = ir.VectorType(INT32, LANES)
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

    return instructions((source, target), emit)


@intrinsic
def prefetch(typing, array, offset):
    """Fetch array[offset] into the cache."""

    def emit(e, array, offset):
        pointer = e.builder.bitcast(e.at(array, offset), BYTE.as_pointer())
        options = [ir.Constant(INT32, value) for value in (0, 3, 1)]  # read, keep, data
        e.call("llvm.prefetch.p0", ir.VoidType(), pointer, *options)

    return instructions((array, offset), emit)
