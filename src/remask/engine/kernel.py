"""Steps of a chain of linear layers with ReLU, as one compiled call per trial.

A step gathers its samples, runs them forward, computes the slopes (the gradients in the logits) of
its terms, goes backward and down, and fills the memory. The first layer skips inputs that are 0
where that is faster; both ways give the same bits.

Nothing is checked in here: numbers of rows and slots must be valid.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from remask.engine.vectors import (
    DESCEND,
    LANES,
    LOOK,
    PAIR,
    RELU,
    SLOPE,
    STORE,
    descend_pairs,
    find_pairs,
    multiply,
    prefetch,
    spread_pairs,
    transpose_block,
)

CROSS_ENTROPY, STORED, TAUGHT = range(3)
"""Kinds of terms: masked cross-entropy, and distance to stored logits or to those of a teacher."""
OPTIONS = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy", "boundscheck": False}
_compiled = njit(**OPTIONS)
_ONE, _ZERO = np.float32(1), np.float32(0)
_LINE = 64  # bytes of a cache line
_BLOCK = 64  # rows whose outputs stay in the first-level cache


class Net(NamedTuple):
    """The parameters of one net."""

    flat: Any
    """Weights [inputs, outputs] and biases of all layers, rows padded to vectors: float32 [P]."""
    layers: Any
    """Inputs, outputs, padded outputs, and the places of weights and biases: int64 [L, 5]."""


class Teacher(NamedTuple):
    """A copy of the net that moves towards it after every step."""

    net: Any
    """No parameters: there is none."""
    shares: Any
    """How far it moves: float32 [steps]."""


class Samples(NamedTuple):
    """Inputs with their labels; the memory is such samples too."""

    inputs: Any
    """uint8 or float32 [N, D]."""
    labels: Any
    """int64 [N]."""
    logits: Any
    """Those stored in memory, float32 [N, K]; empty if none are."""


class Decoding(NamedTuple):
    """What the net receives: inputs * scale + shift."""

    scale: Any
    """float32 [D]."""
    shift: Any
    """float32 [D]."""
    sparse: bool
    """Whether to skip zeros, which needs bytes, one scale, no shift, and at most 65,535 rows."""


class Lists(NamedTuple):
    """For each pair of neighbouring inputs, the rows in which it is not 0."""

    entries: Any
    """int32 [pairs * room]: the row and the two bytes."""
    values: Any
    """What the net receives for each byte: float32 [256]."""
    room: Any
    pairs: Any


class Plan(NamedTuple):
    """The samples of each step."""

    places: Any
    """Those of the stream: int64 [steps, B]."""
    draws: Any
    """Slots of the memory, those of all draws one after the other: int64 [steps, D * R]."""
    slots: Any
    """The slot that each sample of the stream takes afterwards, or -1: int64 [steps, B]."""
    ends: Any
    """Where the stream and each draw end in the samples of a step: int64 [1 + D]."""


class Terms(NamedTuple):
    """The terms of the loss; those with P = 1 are the same in all steps."""

    kind: Any
    """int64 [T]."""
    batch: Any
    """0: the stream; n: the n-th draw. int64 [T]."""
    stored_as: int
    """The term with whose mask the stream's logits are stored; -1: as they are."""
    weight: Any
    """float32 [steps, T]."""
    active: Any
    """Which classes are not masked: bool [P, T, K]."""
    adjusted: Any
    """What is added to the logit of an active class, and the value of another: float32 [P, T, K]"""


@_compiled
def _product(rows, wide, depth, x, w, init, out, mode, factor):
    multiply(rows, wide // LANES, depth, x, w, init, out, mode, factor)


@_compiled
def _find(inputs, place, found, end):
    """Write the pairs of a sample that are not 0 into `found`; returns how many there are."""
    flat, start, count = inputs.reshape(-1), place * inputs.shape[1], inputs.shape[1]
    looks = count // LOOK
    seen, none, one = looks * LOOK, np.int64(0), np.int64(1)
    pairs = find_pairs(flat, start, looks, none, found, none)
    if seen < count:
        end[: count - seen] = flat[start + seen : start + count]
        pairs = find_pairs(end, none, one, seen // PAIR, found, pairs)
    return pairs


@_compiled
def _list(found, row, lists, counts):
    """Add a sample to the lists of the pairs that were found, as a row of the step."""
    for word in found:
        pair = np.int64(word) >> 16
        lists.entries[pair * lists.room + counts[pair]] = np.int64(word) << 16 | row
        counts[pair] += 1


@_compiled
def _decode(inputs, place, decoding, work, start):
    for j in range(inputs.shape[1]):
        value = np.float32(inputs[place, j])
        work[start + j] = value * decoding.scale[j] + decoding.shift[j]


@_compiled
def _prefetch(inputs, places):
    count, flat = inputs.shape[1], inputs.reshape(-1)
    for place in places:
        for j in range(0, count, _LINE // inputs.itemsize):
            prefetch(flat, place * count + j)


@_compiled
def _forward(net, rows, source, start, work, at, first):
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


@_compiled
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


@_compiled
def _forward_all(net, sparse, lists, counts, rows, work, start, at):
    """Compute the outputs of all layers, from lists or from the inputs at `start`."""
    if sparse:
        _forward_sparse(net, rows, lists, counts, work, at[1])
    _forward(net, rows, work, start, work, at, 1 if sparse else 0)


@_compiled
def _backward(net, sparse, lists, counts, rows, work, at, slopes, scratch, one, lr):
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


@_compiled
def _cross_entropy(work, at, to, rows, wide, classes, weight, active, adjusted, labels):
    """The masked cross-entropy of some rows; adds its gradient to their slopes."""
    share, sum_of_all = weight / np.float32(len(rows)), _ZERO
    masked = np.empty(classes, np.float32)
    for row in rows:
        logits, slopes, label = at + row * wide, to + row * wide, labels[row]
        top = -np.float32(np.inf)
        for c in range(classes):
            value = work[logits + c] + adjusted[c] if active[c] else adjusted[c]
            masked[c] = value
            top = value if value > top else top
        own, total = masked[label], _ZERO
        for c in range(classes):
            masked[c] = math.exp(masked[c] - top)
            total += masked[c]
        part = share / total
        for c in range(classes):
            if active[c]:
                work[slopes + c] += part * masked[c]
        if active[label]:
            work[slopes + label] -= share
        sum_of_all += math.log(total) + top - own
    return share * sum_of_all


@_compiled
def _distance(work, at, to, rows, wide, classes, weight, targets, start, stride):
    """The mean squared distance to target logits; adds its gradient to the rows' slopes."""
    share, total = weight / np.float32(len(rows) * classes), _ZERO
    for row in rows:
        for c in range(classes):
            difference = work[at + row * wide + c] - targets[start + row * stride + c]
            work[to + row * wide + c] += np.float32(2) * share * difference
            total += difference * difference
    return share * total


@_compiled
def _insert(memory, data, place, slot, logits, terms, step):
    memory.inputs[slot] = data.inputs[place]
    memory.labels[slot] = data.labels[place]
    if len(memory.logits):
        memory.logits[slot] = logits
        if terms.stored_as >= 0:
            chosen = step % len(terms.active)
            for c in range(len(logits)):
                if not terms.active[terms.stored_as, chosen, c]:
                    memory.logits[slot, c] = terms.adjusted[terms.stored_as, chosen, c]


def run_steps(net, teacher, data, memory, decoding, plan, terms, lr, losses):
    """Run the planned steps; changes the net, its teacher, the memory, and losses [steps, T].

    The losses are those of the terms, with their weights.
    """
    steps, batch = plan.places.shape
    room = batch + plan.draws.shape[1]
    depth, classes = len(net.layers), net.layers[-1, 1]
    inputs, last, sparse = net.layers[0, 0], net.layers[-1, 2], decoding.sparse
    at, slopes, taught = np.zeros((3, depth + 1), np.int64)
    size, largest, copy = np.int64(0), np.int64(0), teacher.net.flat
    for layer in range(depth):
        wide = net.layers[layer, 2]
        at[layer + 1], slopes[layer + 1] = size, size + room * wide
        taught[layer + 1] = size + 2 * room * wide
        size += (3 if len(copy) else 2) * room * wide
        if layer:
            largest = max(largest, wide * net.layers[layer - 1, 2])
    scratch, size = size, size + largest
    at[0], size = size, size + (0 if sparse else room * inputs)
    one, size = size, size + 1
    work = np.zeros(size + _LINE // 4, np.float32)
    aligned = (-work.ctypes.data % _LINE) // 4
    work = work[aligned:]
    work[one] = _ONE
    pairs = (inputs + PAIR - 1) // PAIR if sparse else np.int64(0)
    values = np.arange(256).astype(np.float32) * decoding.scale[0]
    lists = Lists(np.empty(pairs * room, np.int32), values, room, pairs)
    end = np.zeros(LOOK, data.inputs.dtype)
    # The pairs of a step's sample, and those of the samples in memory where they are known.
    found, known = np.empty(pairs, np.uint32), np.empty((len(memory.labels), pairs), np.uint32)
    sizes = np.full(len(memory.labels), -1, np.int64)
    blocks = np.zeros(((room + _BLOCK - 1) // _BLOCK + 1, pairs), np.int64)
    labels, targets = np.zeros(room, np.int64), np.zeros(room * classes, np.float32)
    # A sample that is drawn twice has one row.
    row_of, taken = np.zeros(room, np.int64), np.full(len(memory.labels), -1, np.int64)
    for step in range(steps):
        places, slots = plan.places[step], plan.draws[step]
        rows, counts = np.int64(0), blocks[1]
        counts[:] = 0
        for number in range(room):
            slot = slots[number - batch] if number >= batch else np.int64(-1)
            if slot >= 0 and taken[slot] >= step * room:
                row_of[number] = taken[slot] - step * room
                continue
            row_of[number] = rows
            if sparse and rows and rows % _BLOCK == 0:
                block = rows // _BLOCK
                counts = blocks[block + 1]
                counts[:] = blocks[block]
            if slot >= 0:
                taken[slot] = step * room + rows
                labels[rows] = memory.labels[slot]
                if len(memory.logits):
                    targets[rows * classes : (rows + 1) * classes] = memory.logits[slot]
                source, place = memory.inputs, slot
                if sparse and sizes[slot] < 0:
                    sizes[slot] = _find(source, place, known[slot], end)
            else:
                source, place = data.inputs, places[number]
                labels[rows] = data.labels[place]
            if not sparse:
                _decode(source, place, decoding, work, at[0] + rows * inputs)
            elif slot >= 0:
                _list(known[slot, : sizes[slot]], rows, lists, counts)
            else:
                _list(found[: _find(source, place, found, end)], rows, lists, counts)
            rows += 1
        if step + 1 < steps:
            _prefetch(data.inputs, plan.places[step + 1])
        used = blocks[: (rows + _BLOCK - 1) // _BLOCK + 1]
        _forward_all(net, sparse, lists, used, rows, work, at[0], at)
        if len(copy):
            _forward_all(teacher.net, sparse, lists, used, rows, work, at[0], taught)
        work[slopes[depth] : slopes[depth] + rows * last] = _ZERO
        for term in range(len(terms.kind)):
            number = terms.batch[term]
            own = row_of[plan.ends[number - 1] if number else np.int64(0) : plan.ends[number]]
            where = (work, at[depth], slopes[depth], own, last, classes)
            weight, kind = terms.weight[step, term], terms.kind[term]
            if kind == CROSS_ENTROPY:
                chosen = step % len(terms.active), term
                active, adjusted = terms.active[chosen], terms.adjusted[chosen]
                losses[step, term] = _cross_entropy(*where, weight, active, adjusted, labels)
            elif kind == STORED:
                losses[step, term] = _distance(*where, weight, targets, np.int64(0), classes)
            else:
                losses[step, term] = _distance(*where, weight, work, taught[depth], last)
        _backward(net, sparse, lists, used, rows, work, at, slopes, scratch, one, lr)
        if len(copy):
            share = teacher.shares[step]
            for i in range(len(copy)):
                copy[i] += share * (net.flat[i] - copy[i])
        for row in range(batch):
            slot = plan.slots[step, row]
            if slot >= 0:
                sizes[slot] = -1
                start = at[depth] + row * last
                logits = work[start : start + classes]
                _insert(memory, data, places[row], slot, logits, terms, step)


def compute_logits(net, inputs, logits):
    """Write the logits [N, K] of inputs, float32 [N, D]."""
    depth, flat = len(net.layers), inputs.reshape(-1)
    at, size = np.zeros(depth + 1, np.int64), np.int64(0)
    for layer in range(depth):
        at[layer + 1], size = size, size + _BLOCK * net.layers[layer, 2]
    work = np.empty(size, np.float32)
    for first in range(0, len(inputs), _BLOCK):
        rows = min(_BLOCK, len(inputs) - first)
        _forward(net, rows, flat, first * inputs.shape[1], work, at, 0)
        for row in range(rows):
            start = at[depth] + row * net.layers[-1, 2]
            logits[first + row] = work[start : start + logits.shape[1]]
