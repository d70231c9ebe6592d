"""Forward and backward passes of a chain of linear layers with ReLU, for compiled functions.

The first layer skips inputs that are 0 where that is faster; both ways give the same bits.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from remask.engine.emitter import DESCEND, LANES, RELU, SLOPE, STORE
from remask.engine.vectors import (
    descend_pairs,
    multiply,
    prefetch,
    spread_pairs,
    transpose_block,
)

OPTIONS = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy", "boundscheck": False}
LINE = 64  # bytes of a cache line
BLOCK = 64  # rows whose outputs stay in the first-level cache
compiled = njit(**OPTIONS)
_ONE = np.float32(1)
_ONES = np.ones(1, np.float32)


class Lists(NamedTuple):
    """For each pair of neighbouring inputs, the rows in which it is not 0."""

    entries: Any
    """int32 [pairs * capacity]: the row and the two bytes."""
    values: Any
    """What the net receives for each byte: float32 [256]."""
    capacity: Any
    pairs: Any


@compiled
def product(rows, wide, depth, x, w, init, out, mode, factor):
    """See `vectors.multiply`; `wide` is the number of columns."""
    multiply(rows, wide // LANES, depth, x, w, init, out, mode, factor)


@compiled
def find(inputs, place, found):
    """Write the pairs of a sample that are not 0 into `found`; returns how many there are.

    A pair is its number times 65,536, plus its two bytes. Unsigned indices are twice as fast: they
    cannot be negative.
    """
    sample, size = inputs[place], np.uint64(inputs.shape[1])
    count, two, byte, high = np.uint64(0), np.uint64(2), np.uint32(8), np.uint32(16)
    for pair in range(size // two):
        word = np.uint32(sample[two * pair])
        word |= np.uint32(sample[two * pair + np.uint64(1)]) << byte
        found[count] = np.uint32(pair) << high | word
        count += np.uint64(word != 0)
    if size % two:
        word = np.uint32(sample[size - np.uint64(1)])
        found[count] = np.uint32(size // two) << high | word
        count += np.uint64(word != 0)
    return np.int64(count)


@compiled
def list_sample(found, row, lists, counts):
    """Add a sample to the lists of the pairs that were found, as a row of the step."""
    capacity, high, own = np.uint64(lists.capacity), np.uint32(16), np.uint32(row)
    for word in found:
        pair = np.uint64(word >> high)
        lists.entries[pair * capacity + np.uint64(counts[pair])] = np.int32(word << high | own)
        counts[pair] += 1


@compiled
def decode(inputs, place, decoding, work, start):
    """Write what the net receives of a sample into `work`."""
    for j in range(inputs.shape[1]):
        value = np.float32(inputs[place, j])
        work[start + j] = value * decoding.scale[j] + decoding.shift[j]


@compiled
def fetch_ahead(inputs, places):
    """Fetch samples into the cache."""
    count, flat = inputs.shape[1], inputs.reshape(-1)
    for place in places:
        for j in range(0, count, LINE // inputs.itemsize):
            prefetch(flat, place * count + j)


@compiled
def layer_starts(net, rows):
    """Where the outputs of each layer begin among those of all, and where the last ones end."""
    at = np.zeros(len(net.layers) + 1, np.int64)
    for layer in range(len(net.layers)):
        at[layer + 1] = at[layer] + rows * net.layers[layer, 2]
    return at


@compiled
def forward(net, sparse, lists, counts, rows, samples, outputs, at):
    """Compute the outputs of all layers, the first from lists or from decoded samples."""
    none, unit = np.int64(0), np.int64(1)
    for layer in range(len(net.layers)):
        inputs, _, wide, weights, biases = net.layers[layer]
        x = (samples, none, inputs, unit)
        if layer:
            x = (outputs, at[layer - 1], net.layers[layer - 1, 2], unit)
        w, bias, out = (
            (net.flat, weights, wide),
            (net.flat, biases, none),
            (outputs, at[layer], wide),
        )
        mode = RELU if layer + 1 < len(net.layers) else STORE
        if sparse and not layer:
            product(rows, wide, none, x, w, bias, out, STORE, _ONE)
            for block in range(len(counts) - 1):
                spread_pairs(wide // LANES, lists, counts[block], counts[block + 1], w, out)
            if mode == RELU:
                product(rows, wide, none, x, w, out, out, RELU, _ONE)
        else:
            product(rows, wide, inputs, x, w, bias, out, mode, _ONE)


@compiled
def backward(net, into, sparse, lists, counts, rows, samples, outputs, slopes, at, scratch, factor):
    """Add the gradient of the parameters, times a factor, to `into`, which may be the parameters.

    The slopes of the last layer's outputs are given.
    """
    flat, none, unit = net.flat, np.int64(0), np.int64(1)
    for layer in range(len(net.layers) - 1, -1, -1):
        inputs, _, wide, weights, biases = net.layers[layer]
        own, w = (slopes, at[layer], wide), (into, weights, wide)
        bias, x = (into, biases, none), (samples, none, unit, inputs)
        if layer:
            before, start = net.layers[layer - 1, 2], at[layer - 1]
            x = (outputs, start, unit, before)
            for i in range(0, before, LANES):
                for j in range(0, wide, LANES):
                    block = (flat, weights + i * wide + j, wide)
                    transpose_block(block, (scratch, j * before + i, before))
            turned, hidden = (scratch, none, before), (outputs, start, before)
            gradient, out = (slopes, at[layer], wide, unit), (slopes, start, before)
            product(rows, before, net.layers[layer, 1], gradient, turned, hidden, out, SLOPE, _ONE)
        if layer or not sparse:
            product(inputs, wide, rows, x, own, w, w, DESCEND, factor)
        else:
            descend_pairs(wide // LANES, lists, counts, own, w, factor)
        product(unit, wide, rows, (_ONES, none, none, none), own, bias, bias, DESCEND, factor)
