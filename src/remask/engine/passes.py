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


class Net(NamedTuple):
    """The parameters of one net."""

    flat: Any
    """Weights [inputs, outputs] and biases of all layers, rows padded to vectors: float32 [P]."""
    layers: Any
    """Inputs, outputs, padded outputs, and the places of weights and biases: int64 [L, 5]."""


class Lists(NamedTuple):
    """For each pair of neighbouring inputs, the rows in which it is not 0."""

    entries: Any
    """int32 [pairs * room]: the row and the two bytes."""
    values: Any
    """What the net receives for each byte: float32 [256]."""
    room: Any
    pairs: Any


@compiled
def _product(rows, wide, depth, x, w, init, out, mode, factor):
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
    room, high, own = np.uint64(lists.room), np.uint32(16), np.uint32(row)
    for word in found:
        pair = np.uint64(word >> high)
        lists.entries[pair * room + np.uint64(counts[pair])] = np.int32(word << high | own)
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
def forward(net, rows, source, start, work, at, first):
    """Compute the outputs of the layers from `first` on; `at` is where those of a layer begin.

    The inputs of the net begin at `start` in `source`.
    """
    depth, flat = len(net.layers), net.flat
    for layer in range(first, depth):
        inputs, _, wide, weights, biases = net.layers[layer]
        mode, unit = RELU if layer + 1 < depth else STORE, np.int64(1)
        x = (source, start, inputs, unit)
        if layer:
            x = (work, at[layer], net.layers[layer - 1, 2], unit)
        w, bias, out = (
            (flat, weights, wide),
            (flat, biases, np.int64(0)),
            (work, at[layer + 1], wide),
        )
        _product(rows, wide, inputs, x, w, bias, out, mode, _ONE)


@compiled
def _forward_sparse(net, rows, lists, counts, work, start):
    """Compute the outputs of the first layer from lists."""
    _, _, wide, weights, biases = net.layers[0]
    none, zero, unit = np.int64(0), np.int64(0), np.int64(1)
    w, out, bias = (net.flat, weights, wide), (work, start, wide), (net.flat, biases, zero)
    _product(rows, wide, none, (work, zero, zero, unit), w, bias, out, STORE, _ONE)
    for block in range(len(counts) - 1):
        spread_pairs(wide // LANES, lists, counts[block], counts[block + 1], w, out)
    if len(net.layers) > 1:
        _product(rows, wide, none, (work, zero, zero, unit), w, out, out, RELU, _ONE)


@compiled
def forward_all(net, sparse, lists, counts, rows, work, start, at):
    """Compute the outputs of all layers, from lists or from the inputs at `start`."""
    if sparse:
        _forward_sparse(net, rows, lists, counts, work, at[1])
    forward(net, rows, work, start, work, at, 1 if sparse else 0)


@compiled
def backward(net, sparse, lists, counts, rows, work, at, slopes, scratch, one, lr):
    """Descend along the slopes of the logits, which are at slopes[-1]."""
    flat, zero, unit = net.flat, np.int64(0), np.int64(1)
    for layer in range(len(net.layers) - 1, -1, -1):
        inputs, outputs, wide, weights, biases = net.layers[layer]
        own, w, bias = (work, slopes[layer + 1], wide), (flat, weights, wide), (flat, biases, zero)
        if layer:
            before = net.layers[layer - 1, 2]
            for i in range(0, before, LANES):
                for j in range(0, wide, LANES):
                    block = (flat, weights + i * wide + j, wide)
                    transpose_block(block, (work, scratch + j * before + i, before))
            x = (work, slopes[layer + 1], wide, unit)
            turned, hidden = (work, scratch, before), (work, at[layer], before)
            out = (work, slopes[layer], before)
            _product(rows, before, outputs, x, turned, hidden, out, SLOPE, _ONE)
        if layer or not sparse:
            x = (work, at[layer], unit, net.layers[layer - 1, 2] if layer else inputs)
            _product(inputs, wide, rows, x, own, w, w, DESCEND, -lr)
        else:
            descend_pairs(wide // LANES, lists, counts[-1], own, w, -lr)
        _product(unit, wide, rows, (work, one, zero, zero), own, bias, bias, DESCEND, -lr)
