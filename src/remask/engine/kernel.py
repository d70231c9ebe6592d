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

from remask.engine.compiling import CROSS_ENTROPY, STORED
from remask.engine.emitter import DESCEND, PAIR
from remask.engine.passes import (
    BLOCK,
    LINE,
    OPTIONS,
    Lists,
    backward,
    compiled,
    decode,
    fetch_ahead,
    find,
    forward,
    layer_starts,
    list_sample,
    product,
)
from remask.methods.gem import solve

_ZERO, _ONE = np.float32(0), np.float32(1)
_solve = compiled(solve)
# Numba translates all that a compiled function calls once more with it, which takes seconds.
_inlined = njit(**OPTIONS, inline="always")


@compiled
def _cross_entropy(outputs, slopes, rows, wide, classes, weight, active, adjusted, labels):
    """The masked cross-entropy of some rows; adds its gradient to their slopes."""
    share, sum_of_all = weight / np.float32(len(rows)), _ZERO
    masked = np.empty(classes, np.float32)
    for row in rows:
        start, label = row * wide, labels[row]
        top = -np.float32(np.inf)
        for c in range(classes):
            value = outputs[start + c] + adjusted[c] if active[c] else adjusted[c]
            masked[c] = value
            top = value if value > top else top
        own, total = masked[label], _ZERO
        for c in range(classes):
            masked[c] = math.exp(masked[c] - top)
            total += masked[c]
        part = share / total
        for c in range(classes):
            if active[c]:
                slopes[start + c] += part * masked[c]
        if active[label]:
            slopes[start + label] -= share
        sum_of_all += math.log(total) + top - own
    return share * sum_of_all


@compiled
def _distance(outputs, slopes, rows, wide, classes, weight, targets, start, stride):
    """The mean squared distance to target logits; adds its gradient to the rows' slopes."""
    share, total = weight / np.float32(len(rows) * classes), _ZERO
    for row in rows:
        for c in range(classes):
            difference = outputs[row * wide + c] - targets[start + row * stride + c]
            slopes[row * wide + c] += np.float32(2) * share * difference
            total += difference * difference
    return share * total


@compiled
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


class _Buffers(NamedTuple):
    """Arrays that all steps use."""

    at: Any
    """Where the outputs of each layer begin in the next three: int64 [1 + L]."""
    outputs: Any
    slopes: Any
    """The gradients of the outputs."""
    taught: Any
    """The teacher's outputs."""
    inputs: Any
    """Those of the net, unless zeros are skipped."""
    scratch: Any
    """Transposed weights."""
    lists: Any
    blocks: Any
    """The lengths of the lists before and after each block of rows: int64 [1 + blocks, pairs]."""
    found: Any
    known: Any
    """The pairs of samples in memory: uint32 [M, pairs]."""
    sizes: Any
    """The number of these pairs, -1 if they are not known: int64 [M]."""
    rows: Any
    """The row of each sample of the terms' batches: int64."""
    taken: Any
    """The latest mark times the most rows, plus the row of each slot then: int64 [M]."""
    labels: Any
    targets: Any
    """The labels and the stored logits of each row."""


@compiled
def _aligned(size):
    """Zeros that begin at a cache line."""
    memory = np.zeros(size + LINE // 4, np.float32)
    return memory[(-memory.ctypes.data % LINE) // 4 :][:size]


@compiled
def _lists(inputs, decoding, rows):
    """Empty lists for up to `rows` rows, and a buffer for `find`."""
    count = inputs.shape[1]
    pairs = (count + PAIR - 1) // PAIR if decoding.sparse else np.int64(0)
    values = np.arange(256).astype(np.float32) * decoding.scale[0]
    lists = Lists(np.empty(pairs * rows, np.int32), values, rows, pairs)
    return lists, np.empty(pairs + 1, np.uint32)


@compiled
def _allocate(net, teacher, data, memory, decoding, rows):
    """Allocate what steps of at most some rows use."""
    slots, inputs, none = len(memory.labels), net.layers[0, 0], np.int64(0)
    at, weights = layer_starts(net, rows), none
    for layer in range(1, len(net.layers)):
        weights = max(weights, net.layers[layer, 2] * net.layers[layer - 1, 2])
    lists, found = _lists(data.inputs, decoding, rows)
    return _Buffers(
        at,
        _aligned(at[-1]),
        _aligned(at[-1]),
        _aligned(at[-1] if len(teacher.net.flat) else none),
        _aligned(none if decoding.sparse else rows * inputs),
        _aligned(weights),
        lists,
        np.zeros(((rows + BLOCK - 1) // BLOCK + 1, lists.pairs), np.int64),
        found,
        np.empty((slots, len(found)), np.uint32),
        np.full(slots, -1, np.int64),
        np.zeros(rows, np.int64),
        np.full(slots, -1, np.int64),
        np.zeros(rows, np.int64),
        np.zeros((rows, net.layers[-1, 1]), np.float32),
    )


@compiled
def _gather(buffers, data, memory, decoding, places, slots, mark):
    """Make samples the rows of a pass; returns how many. Samples drawn twice have one row.

    The mark is larger than that of earlier passes.
    """
    batch, most = len(places), len(buffers.rows)
    sparse, inputs = decoding.sparse, data.inputs.shape[1]
    rows, counts = np.int64(0), buffers.blocks[1]
    counts[:] = 0
    for number in range(batch + len(slots)):
        slot = slots[number - batch] if number >= batch else np.int64(-1)
        if slot >= 0 and buffers.taken[slot] >= mark * most:
            buffers.rows[number] = buffers.taken[slot] - mark * most
            continue
        buffers.rows[number] = rows
        if sparse and rows and rows % BLOCK == 0:
            counts = buffers.blocks[rows // BLOCK + 1]
            counts[:] = buffers.blocks[rows // BLOCK]
        source, place, own, size = data.inputs, slot, buffers.found, np.int64(-1)
        if slot >= 0:
            buffers.taken[slot] = mark * most + rows
            buffers.labels[rows] = memory.labels[slot]
            if len(memory.logits):
                buffers.targets[rows] = memory.logits[slot]
            source, own, size = memory.inputs, buffers.known[slot], buffers.sizes[slot]
        else:
            place = places[number]
            buffers.labels[rows] = data.labels[place]
        if not sparse:
            decode(source, place, decoding, buffers.inputs, rows * inputs)
        else:
            if size < 0:
                size = find(source, place, own)
            if slot >= 0:
                buffers.sizes[slot] = size
            list_sample(own[:size], rows, buffers.lists, counts)
        rows += 1
    return rows


@compiled
def _losses(buffers, net, plan, terms, step, losses):
    """Compute the losses of a step's terms, and the slopes of the logits."""
    classes, wide, at = net.layers[-1, 1], net.layers[-1, 2], buffers.at[-2]
    for term in range(len(terms.kind)):
        number = terms.batch[term]
        own = buffers.rows[plan.ends[number - 1] if number else np.int64(0) : plan.ends[number]]
        where = (buffers.outputs[at:], buffers.slopes[at:], own, wide, classes)
        weight, kind = terms.weight[step, term], terms.kind[term]
        if kind == CROSS_ENTROPY:
            chosen = step % len(terms.active), term
            active, adjusted = terms.active[chosen], terms.adjusted[chosen]
            losses[term] = _cross_entropy(*where, weight, active, adjusted, buffers.labels)
        elif kind == STORED:
            targets = buffers.targets.reshape(-1)
            losses[term] = _distance(*where, weight, targets, np.int64(0), classes)
        else:
            losses[term] = _distance(*where, weight, buffers.taught, at, wide)


@_inlined
def _forward(buffers, net, decoding, rows, outputs):
    blocks = buffers.blocks[: (rows + BLOCK - 1) // BLOCK + 1]
    forward(net, decoding.sparse, buffers.lists, blocks, rows, buffers.inputs, outputs, buffers.at)


@_inlined
def _backward(buffers, net, into, decoding, rows, factor):
    counts = buffers.blocks[(rows + BLOCK - 1) // BLOCK]
    passes = buffers.inputs, buffers.outputs, buffers.slopes, buffers.at, buffers.scratch
    backward(net, into, decoding.sparse, buffers.lists, counts, rows, *passes, factor)


@_inlined
def _past_gradient(buffers, net, data, memory, decoding, slots, mark, gradient):
    """Compute that of the mean cross-entropy of samples in memory; returns the next mark."""
    classes, wide, at = net.layers[-1, 1], net.layers[-1, 2], buffers.at[-2]
    for first in range(0, len(slots), BLOCK):
        own = slots[first : first + BLOCK]
        rows = _gather(buffers, data, memory, decoding, own[:0], own, mark)
        _forward(buffers, net, decoding, rows, buffers.outputs)
        buffers.slopes[at:] = _ZERO
        where = (buffers.outputs[at:], buffers.slopes[at:], buffers.rows[:rows], wide, classes)
        weight, active = np.float32(len(own) / len(slots)), np.ones(classes, np.bool_)
        _cross_entropy(*where, weight, active, np.zeros(classes, np.float32), buffers.labels)
        _backward(buffers, net, gradient, decoding, rows, _ONE)
        mark += 1
    return mark


@njit(**OPTIONS | {"fastmath": {"contract", "reassoc", "nsz"}})
def _inner(one, other):
    """The inner product; LLVM orders the sum, as vectors."""
    total = 0.0
    for i in range(len(one)):
        total += np.float64(one[i]) * np.float64(other[i])
    return total


@_inlined
def _descend_constrained(net, gradients, constraint, factor):
    """Descend along the first gradient and as much of the others as `solve` finds."""
    count, size = gradients.shape
    gram = np.empty((count, count))
    for i in range(count):
        for j in range(i + 1):
            gram[i, j] = gram[j, i] = _inner(gradients[i], gradients[j])
    shares, products = np.zeros(count, np.float32), gram[0, 1:]
    shares[0] = 1
    if (products < 0).any():
        past = np.ascontiguousarray(gram[1:, 1:])
        shares[1:] = _solve(past, products, constraint.least, constraint.ridge)
    none, flat = np.int64(0), (net.flat, np.int64(0), np.int64(0))
    x, w = (shares, none, none, np.int64(1)), (gradients.reshape(-1), none, size)
    product(np.int64(1), size, count, x, w, flat, flat, DESCEND, factor)


def run_steps(net, teacher, data, memory, decoding, plan, terms, constraint, lr, losses):
    """Run the planned steps; changes the net, its teacher, the memory, and losses [steps, T].

    The losses are those of the terms, with their weights.
    """
    steps, batch = plan.places.shape
    classes, wide = net.layers[-1, 1], net.layers[-1, 2]
    constrained = constraint.ridge >= 0 and len(plan.ends) > 1
    replayed = np.int64(0) if constrained else plan.draws.shape[1]
    most = max(batch, min(plan.draws.shape[1], BLOCK)) if constrained else batch + replayed
    buffers = _allocate(net, teacher, data, memory, decoding, most)
    gradients = _aligned(len(plan.ends) * len(net.flat) if constrained else np.int64(0))
    gradients = gradients.reshape(-1, len(net.flat))
    copy, at, mark = teacher.net.flat, buffers.at, np.int64(0)
    for step in range(steps):
        places, draws = plan.places[step], plan.draws[step % len(plan.draws)]
        rows = _gather(buffers, data, memory, decoding, places, draws[:replayed], mark)
        mark += 1
        if step + 1 < steps:
            fetch_ahead(data.inputs, plan.places[step + 1])
        _forward(buffers, net, decoding, rows, buffers.outputs)
        if len(copy):
            _forward(buffers, teacher.net, decoding, rows, buffers.taught)
        buffers.slopes[at[-2] :] = _ZERO
        _losses(buffers, net, plan, terms, step, losses[step])
        if constrained:
            gradients[:] = _ZERO
            _backward(buffers, net, gradients[0], decoding, rows, _ONE)
            for own in range(1, len(gradients)):
                slots = draws[plan.ends[own - 1] - batch : plan.ends[own] - batch]
                mark = _past_gradient(
                    buffers, net, data, memory, decoding, slots, mark, gradients[own]
                )
            _descend_constrained(net, gradients, constraint, -lr)
        else:
            _backward(buffers, net, net.flat, decoding, rows, -lr)
        if len(copy):
            share = teacher.shares[step]
            for i in range(len(copy)):
                copy[i] += share * (net.flat[i] - copy[i])
        for row in range(batch):
            slot = plan.slots[step, row]
            if slot >= 0:
                buffers.sizes[slot] = -1
                logits = buffers.outputs[at[-2] + row * wide :][:classes]
                _insert(memory, data, places[row], slot, logits, terms, step)


def compute_logits(net, inputs, places, decoding, logits):
    """Write the logits [N, K] of the samples in some places, int64 [N]."""
    count, sparse, at = inputs.shape[1], decoding.sparse, layer_starts(net, np.int64(BLOCK))
    samples, outputs = _aligned(BLOCK * count), _aligned(at[-1])
    lists, found = _lists(inputs, decoding, np.int64(BLOCK))
    counts = np.zeros((2, lists.pairs), np.int64)
    for first in range(0, len(places), BLOCK):
        rows = min(BLOCK, len(places) - first)
        fetch_ahead(inputs, places[first + BLOCK : first + 2 * BLOCK])
        counts[1] = 0
        for row in range(rows):
            place = places[first + row]
            if sparse:
                list_sample(found[: find(inputs, place, found)], row, lists, counts[1])
            else:
                decode(inputs, place, decoding, samples, row * count)
        forward(net, sparse, lists, counts, rows, samples, outputs, at)
        for row in range(rows):
            start = at[-2] + row * net.layers[-1, 2]
            logits[first + row] = outputs[start : start + logits.shape[1]]
