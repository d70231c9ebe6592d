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
    descend_pair,
    list_pairs,
    multiply,
    prefetch,
    spread_pair,
    transpose_block,
)

CROSS_ENTROPY, STORED = range(2)
"""Kinds of terms: masked cross-entropy, and distance to stored logits."""
OPTIONS = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy", "boundscheck": False}
_compiled = njit(**OPTIONS)
_ONE, _ZERO = np.float32(1), np.float32(0)
_LINE = 64  # bytes of a cache line


class Net(NamedTuple):
    """The parameters of one net."""

    flat: Any
    """Weights [inputs, outputs] and biases of all layers, rows padded to vectors: float32 [P]."""
    layers: Any
    """Inputs, outputs, padded outputs, and the places of weights and biases: int64 [L, 5]."""
    widths: Any
    """Tiles of each layer's outputs, and of the first one's in sparse products: int64 [L + 1, n].
    Each row begins with their number."""


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
    entries: Any
    """Room for the lists of a step: [pairs * N], int32 for uint8 inputs and 3 float32 for others.
    Empty: do not skip zeros. Skipping needs one scale, no shift, and at most 65,535 rows."""


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
    weight: Any
    """float32 [T, steps]."""
    active: Any
    """Which classes are not masked: bool [T, P, K]."""
    adjusted: Any
    """What is added to the logit of an active class, and the value of another: float32 [T, P, K]"""
    stored_as: int
    """The term with whose mask the stream's logits are stored; -1: as they are."""


@_compiled
def _product(rows, widths, depth, x, w, init, out, mode, factor):
    multiply(rows, widths, depth, x, w, init, out, mode, factor)


@_compiled
def _list(inputs, places, first, room, entries, counts):
    """Add samples to the lists of their pairs, as the rows of a step from `first` on."""
    count, flat = inputs.shape[1], inputs.reshape(-1)
    looks = count * inputs.itemsize // LOOK
    seen = looks * LOOK // inputs.itemsize
    end = np.zeros(LOOK // inputs.itemsize, inputs.dtype)
    for number in range(len(places)):
        start = places[number] * count
        list_pairs(flat, start, looks, first + number, room, counts, entries)
        if seen < count:
            end[: count - seen] = flat[start + seen : start + count]
            rest = (
                counts[seen // PAIR :],
                entries[seen // PAIR * room * (1 if inputs.itemsize == 1 else 1 + PAIR) :],
            )
            list_pairs(end, 0, 1, first + number, room, *rest)


@_compiled
def _gather(samples, places, first, room, decoding, counts, work, start):
    """Make samples the rows of a step from `first` on: in lists, or in `work` from `start` on."""
    if len(decoding.entries):
        _list(samples.inputs, places, first, room, decoding.entries, counts)
        return
    count = samples.inputs.shape[1]
    for number in range(len(places)):
        place, at = places[number], start + (first + number) * count
        for j in range(count):
            value = np.float32(samples.inputs[place, j])
            work[at + j] = value * decoding.scale[j] + decoding.shift[j]


@_compiled
def _prefetch(inputs, places):
    count, flat = inputs.shape[1], inputs.reshape(-1)
    for place in places:
        for j in range(0, count, _LINE // inputs.itemsize):
            prefetch(flat, place * count + j)


@_compiled
def _forward(net, decoding, counts, rows, work, at):
    """Compute the outputs of all layers; `at` is where those of a layer begin."""
    depth, sparse = len(net.layers), len(decoding.entries) > 0
    flat, zero, unit = net.flat, np.int64(0), np.int64(1)
    for layer in range(depth):
        inputs, _, wide, weights, biases = net.layers[layer]
        mode = RELU if layer + 1 < depth else STORE
        out = at[layer + 1]
        if layer or not sparse:
            stride = net.layers[layer - 1, 2] if layer else inputs
            x = (work, at[layer], stride, unit)
            w, bias = (flat, weights, wide), (flat, biases, zero)
            _product(rows, net.widths[layer], inputs, x, w, bias, (work, out, wide), mode, _ONE)
            continue
        for row in range(rows):
            for j in range(wide):
                work[out + row * wide + j] = flat[biases + j]
        for pair in range(len(counts)):
            if counts[pair]:
                w = (flat, weights + pair * PAIR * wide, wide)
                start, tiles, scale = pair * rows, net.widths[depth], decoding.scale[0]
                whole = (work, out, wide)
                spread_pair(tiles, decoding.entries, start, counts[pair], scale, w, whole)
        if mode == RELU:
            for j in range(out, out + rows * wide):
                if work[j] < _ZERO:  # keeps NaN
                    work[j] = _ZERO


@_compiled
def _backward(net, decoding, counts, rows, work, at, slopes, scratch, one, lr):
    """Descend along the slopes of the logits, which are at slopes[-1]."""
    depth, sparse = len(net.layers), len(decoding.entries) > 0
    flat, zero, unit = net.flat, np.int64(0), np.int64(1)
    for layer in range(depth - 1, -1, -1):
        inputs, outputs, wide, weights, biases = net.layers[layer]
        widths, own = net.widths[layer], (work, slopes[layer + 1], wide)
        w, bias = (flat, weights, wide), (flat, biases, zero)
        if layer:
            before = net.layers[layer - 1, 2]
            for i in range(0, before, LANES):
                for j in range(0, wide, LANES):
                    block = (flat, weights + i * wide + j, wide)
                    transpose_block(block, (work, scratch + j * before + i, before))
            x = (work, slopes[layer + 1], wide, unit)
            turned, hidden = (work, scratch, before), (work, at[layer], before)
            out = (work, slopes[layer], before)
            _product(rows, net.widths[layer - 1], outputs, x, turned, hidden, out, SLOPE, _ONE)
        if layer or not sparse:
            stride = net.layers[layer - 1, 2] if layer else inputs
            x = (work, at[layer], unit, stride)
            _product(inputs, widths, rows, x, own, w, w, DESCEND, -lr)
        else:
            for pair in range(len(counts)):
                if counts[pair]:
                    w = (flat, weights + pair * PAIR * wide, wide)
                    start, tiles, scale = pair * rows, net.widths[depth], decoding.scale[0]
                    count = counts[pair]
                    descend_pair(tiles, decoding.entries, start, count, scale, own, w, -lr)
        _product(unit, widths, rows, (work, one, zero, zero), own, bias, bias, DESCEND, -lr)


@_compiled
def _cross_entropy(work, at, to, first, last, wide, classes, weight, active, adjusted, labels):
    """The masked cross-entropy of some rows; adds its gradient to their slopes."""
    share, sum_of_all = weight / np.float32(last - first), _ZERO
    masked = np.empty(classes, np.float32)
    for row in range(first, last):
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
def _distance(work, at, to, first, last, wide, classes, weight, targets):
    """The mean squared distance to target logits; adds its gradient to their slopes."""
    share, total = weight / np.float32((last - first) * classes), _ZERO
    for row in range(first, last):
        for c in range(classes):
            difference = work[at + row * wide + c] - targets[row * classes + c]
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
            chosen = step if terms.active.shape[1] > 1 else 0
            for c in range(len(logits)):
                if not terms.active[terms.stored_as, chosen, c]:
                    memory.logits[slot, c] = terms.adjusted[terms.stored_as, chosen, c]


def run_steps(net, data, memory, decoding, plan, terms, lr, losses):
    """Run the planned steps; changes the net, the memory, and losses [steps, T].

    The losses are those of the terms, with their weights.
    """
    steps, batch = plan.places.shape
    room = batch + plan.draws.shape[1]  # rows of a step
    depth, classes = len(net.layers), net.layers[-1, 1]
    inputs, last, sparse = net.layers[0, 0], net.layers[-1, 2], len(decoding.entries) > 0
    at, slopes = np.zeros(depth + 1, np.int64), np.zeros(depth + 1, np.int64)
    size, widest = np.int64(0), np.int64(0)
    for layer in range(depth):
        wide = net.layers[layer, 2]
        at[layer + 1], slopes[layer + 1] = size, size + room * wide
        size += 2 * room * wide
        widest = max(widest, wide)
    scratch, size = size, size + widest * widest
    at[0], size = size, size + (0 if sparse else room * inputs)
    one, size = size, size + 1
    work = np.zeros(size + _LINE // 4, np.float32)
    aligned = (-work.ctypes.data % _LINE) // 4
    work = work[aligned:]
    work[one] = _ONE
    pairs = (inputs + PAIR - 1) // PAIR if sparse else np.int64(0)
    counts = np.zeros(pairs, np.int64)  # the lengths of the lists
    labels, targets = np.zeros(room, np.int64), np.zeros(room * classes, np.float32)
    for step in range(steps):
        counts[:] = 0
        places, slots = plan.places[step], plan.draws[step]
        _gather(data, places, 0, room, decoding, counts, work, at[0])
        _gather(memory, slots, batch, room, decoding, counts, work, at[0])
        if step + 1 < steps:
            _prefetch(data.inputs, plan.places[step + 1])
        for row in range(batch):
            labels[row] = data.labels[places[row]]
        for row in range(batch, room):
            slot = slots[row - batch]
            labels[row] = memory.labels[slot]
            if len(memory.logits):
                for c in range(classes):
                    targets[row * classes + c] = memory.logits[slot, c]
        _forward(net, decoding, counts, room, work, at)
        work[slopes[depth] : slopes[depth] + room * last] = _ZERO
        for term in range(len(terms.kind)):
            number = terms.batch[term]
            first = plan.ends[number - 1] if number else np.int64(0)
            where = (work, at[depth], slopes[depth], first, plan.ends[number], last, classes)
            weight, kind = terms.weight[term, step], terms.kind[term]
            if kind == CROSS_ENTROPY:
                chosen = step if terms.active.shape[1] > 1 else 0
                active, adjusted = terms.active[term, chosen], terms.adjusted[term, chosen]
                losses[step, term] = _cross_entropy(*where, weight, active, adjusted, labels)
            else:
                losses[step, term] = _distance(*where, weight, targets)
        _backward(net, decoding, counts, room, work, at, slopes, scratch, one, lr)
        for row in range(batch):
            slot = plan.slots[step, row]
            if slot >= 0:
                start = at[depth] + row * last
                logits = work[start : start + classes]
                _insert(memory, data, places[row], slot, logits, terms, step)
