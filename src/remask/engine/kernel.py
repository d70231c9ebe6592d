"""Steps of a chain of linear layers with ReLU, as one compiled call per trial.

A step gathers its samples, runs them forward, computes the slopes (the gradients in the logits) of
its terms, goes backward and down, and fills the memory. The first layer skips inputs that are 0
where that is faster; both ways give the same bits.

Nothing is checked in here: numbers of rows and slots must be valid.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from remask.engine.emitter import PAIR
from remask.engine.passes import (
    BLOCK,
    LINE,
    Lists,
    backward,
    compiled,
    decode,
    fetch_ahead,
    find,
    forward_all,
    list_sample,
)

CROSS_ENTROPY, STORED, TAUGHT = range(3)
"""Kinds of terms: masked cross-entropy, and distance to stored logits or to those of a teacher."""
_ONE, _ZERO = np.float32(1), np.float32(0)


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


@compiled
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


@compiled
def _distance(work, at, to, rows, wide, classes, weight, targets, start, stride):
    """The mean squared distance to target logits; adds its gradient to the rows' slopes."""
    share, total = weight / np.float32(len(rows) * classes), _ZERO
    for row in rows:
        for c in range(classes):
            difference = work[at + row * wide + c] - targets[start + row * stride + c]
            work[to + row * wide + c] += np.float32(2) * share * difference
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


class _Room(NamedTuple):
    """Arrays that all steps use."""

    work: Any
    """Activations, slopes and more: float32, from a cache line on."""
    at: Any
    """Where the inputs of the net and the outputs of each layer begin in `work`: int64 [1 + L]."""
    slopes: Any
    """The same of the outputs' gradients."""
    taught: Any
    """The same of the teacher's outputs."""
    scratch: Any
    one: Any
    """Where transposed weights, and a 1, are in `work`."""
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
    """The step times the rows of a step, plus the row of each slot then: int64 [M]."""
    labels: Any
    targets: Any
    """The labels and the stored logits of each row."""


@compiled
def _lists(inputs, decoding, rows):
    """Lists of at most some rows, and room for `find`."""
    count = inputs.shape[1]
    pairs = (count + PAIR - 1) // PAIR if decoding.sparse else np.int64(0)
    values = np.arange(256).astype(np.float32) * decoding.scale[0]
    lists = Lists(np.empty(pairs * rows, np.int32), values, rows, pairs)
    return lists, np.empty(pairs + 1, np.uint32)


@compiled
def _room(net, teacher, data, memory, decoding, rows):
    """Allocate what steps of at most some rows use."""
    depth, inputs, sparse, slots = (
        len(net.layers),
        net.layers[0, 0],
        decoding.sparse,
        len(memory.labels),
    )
    at, slopes, taught = np.zeros((3, depth + 1), np.int64)
    size, largest = np.int64(0), np.int64(0)
    for layer in range(depth):
        wide = net.layers[layer, 2]
        at[layer + 1], slopes[layer + 1] = size, size + rows * wide
        taught[layer + 1] = size + 2 * rows * wide
        size += (3 if len(teacher.net.flat) else 2) * rows * wide
        if layer:
            largest = max(largest, wide * net.layers[layer - 1, 2])
    scratch, at[0] = size, size + largest
    one = at[0] + (0 if sparse else rows * inputs)
    work = np.zeros(one + 1 + LINE // 4, np.float32)
    work = work[(-work.ctypes.data % LINE) // 4 :]
    work[one] = _ONE
    lists, found = _lists(data.inputs, decoding, rows)
    return _Room(
        work,
        at,
        slopes,
        taught,
        scratch,
        one,
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
def _gather(room, data, memory, decoding, places, slots, step):
    """Make the samples of a step its rows; returns how many. Samples drawn twice have one row."""
    batch, most = len(places), len(room.rows)
    sparse, inputs = decoding.sparse, data.inputs.shape[1]
    rows, counts = np.int64(0), room.blocks[1]
    counts[:] = 0
    for number in range(most):
        slot = slots[number - batch] if number >= batch else np.int64(-1)
        if slot >= 0 and room.taken[slot] >= step * most:
            room.rows[number] = room.taken[slot] - step * most
            continue
        room.rows[number] = rows
        if sparse and rows and rows % BLOCK == 0:
            counts = room.blocks[rows // BLOCK + 1]
            counts[:] = room.blocks[rows // BLOCK]
        source, place, own, size = data.inputs, slot, room.found, np.int64(-1)
        if slot >= 0:
            room.taken[slot] = step * most + rows
            room.labels[rows] = memory.labels[slot]
            if len(memory.logits):
                room.targets[rows] = memory.logits[slot]
            source, own, size = memory.inputs, room.known[slot], room.sizes[slot]
        else:
            place = places[number]
            room.labels[rows] = data.labels[place]
        if not sparse:
            decode(source, place, decoding, room.work, room.at[0] + rows * inputs)
        else:
            if size < 0:
                size = find(source, place, own)
            if slot >= 0:
                room.sizes[slot] = size
            list_sample(own[:size], rows, room.lists, counts)
        rows += 1
    return rows


@compiled
def _losses(room, net, plan, terms, step, losses):
    """Compute the losses of a step's terms, and the slopes of the logits."""
    depth, classes, wide = len(net.layers), net.layers[-1, 1], net.layers[-1, 2]
    for term in range(len(terms.kind)):
        number = terms.batch[term]
        own = room.rows[plan.ends[number - 1] if number else np.int64(0) : plan.ends[number]]
        where = (room.work, room.at[depth], room.slopes[depth], own, wide, classes)
        weight, kind = terms.weight[step, term], terms.kind[term]
        if kind == CROSS_ENTROPY:
            chosen = step % len(terms.active), term
            active, adjusted = terms.active[chosen], terms.adjusted[chosen]
            losses[term] = _cross_entropy(*where, weight, active, adjusted, room.labels)
        elif kind == STORED:
            targets = room.targets.reshape(-1)
            losses[term] = _distance(*where, weight, targets, np.int64(0), classes)
        else:
            losses[term] = _distance(*where, weight, room.work, room.taught[depth], wide)


def run_steps(net, teacher, data, memory, decoding, plan, terms, lr, losses):
    """Run the planned steps; changes the net, its teacher, the memory, and losses [steps, T].

    The losses are those of the terms, with their weights.
    """
    steps, batch = plan.places.shape
    depth, classes, wide = len(net.layers), net.layers[-1, 1], net.layers[-1, 2]
    sparse, copy = decoding.sparse, teacher.net.flat
    room = _room(net, teacher, data, memory, decoding, batch + plan.draws.shape[1])
    work, at, slopes, lists = room.work, room.at, room.slopes, room.lists
    for step in range(steps):
        places = plan.places[step]
        rows = _gather(room, data, memory, decoding, places, plan.draws[step], step)
        if step + 1 < steps:
            fetch_ahead(data.inputs, plan.places[step + 1])
        blocks = room.blocks[: (rows + BLOCK - 1) // BLOCK + 1]
        forward_all(net, sparse, lists, blocks, rows, work, at[0], at)
        if len(copy):
            forward_all(teacher.net, sparse, lists, blocks, rows, work, at[0], room.taught)
        work[slopes[depth] : slopes[depth] + rows * wide] = _ZERO
        _losses(room, net, plan, terms, step, losses[step])
        args = (rows, work, at, slopes, room.scratch, room.one, lr)
        backward(net, sparse, lists, blocks, *args)
        if len(copy):
            share = teacher.shares[step]
            for i in range(len(copy)):
                copy[i] += share * (net.flat[i] - copy[i])
        for row in range(batch):
            slot = plan.slots[step, row]
            if slot >= 0:
                room.sizes[slot] = -1
                logits = work[at[depth] + row * wide :][:classes]
                _insert(memory, data, places[row], slot, logits, terms, step)


def compute_logits(net, inputs, places, decoding, logits):
    """Write the logits [N, K] of the samples in some places, int64 [N]."""
    depth, count, sparse = len(net.layers), inputs.shape[1], decoding.sparse
    at, size = np.zeros(depth + 1, np.int64), BLOCK * count
    for layer in range(depth):
        at[layer + 1], size = size, size + BLOCK * net.layers[layer, 2]
    work = np.empty(size, np.float32)
    lists, found = _lists(inputs, decoding, np.int64(BLOCK))
    counts = np.zeros((2, lists.pairs), np.int64)
    for first in range(0, len(places), BLOCK):
        rows = min(BLOCK, len(places) - first)
        counts[1] = 0
        for row in range(rows):
            place = places[first + row]
            if sparse:
                list_sample(found[: find(inputs, place, found)], row, lists, counts[1])
            else:
                decode(inputs, place, decoding, work, row * count)
        forward_all(net, sparse, lists, counts, rows, work, 0, at)
        for row in range(rows):
            start = at[depth] + row * net.layers[-1, 2]
            logits[first + row] = work[start : start + logits.shape[1]]
