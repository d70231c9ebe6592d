"""The loop: how a stack learns a task, step by step."""

from collections.abc import Callable, Iterator

from torch import Tensor

from remask.engine.parts import Parts
from remask.engine.state import network_tensors
from remask.engine.stream import Position
from remask.streams import Task

_BEGIN, _END = -1, -2  # in place of an epoch, in the names of random numbers


def learn_steps(
    parts: Parts, task: Task, enough: Callable[[int], bool] | None = None
) -> Iterator[Position]:
    """Learn a task from where the stack stands; see `TrialStack.learn_steps`."""
    stream, feed, method, descent = parts.stream, parts.feed, parts.method, parts.descent
    index, begun, done = stream.position
    extra = _begin(parts, task)
    epochs = method.context.epochs
    steps = stream.steps_of(task, 0 if extra is None else extra.shape[1])
    stream.note(task, steps)
    parts.measured.begin_task(steps * epochs)
    masking = feed.masking(task)
    earlier = int(stream.counts[:index].sum())
    for epoch in range(begun, epochs):
        lr = descent.rates(epoch)
        plan = feed.plan(task.rows, (index, epoch), earlier, extra, begin=done)
        for number in range(done, steps):
            _enter(parts, index, epoch, number, lr=lr)
            step = feed.step(plan, number, masking, task)
            method.begin_step(step)
            loss = descent.step(step, lr) if method.trains_net else None
            feed.remember(plan, number, step)
            method.after_step(step)
            stream.position = Position(index, epoch, number + 1)
            parts.measured.after_step(task, loss, epoch * steps + number + 1)
            yield stream.position
        stream.position = Position(index, epoch + 1)
        done = 0
        if enough is not None and enough(epoch + 1):
            break
    parts.measured.after_last_step()
    feed.count_memory(earlier + len(task.rows))
    _enter(parts, index, _END, lr=descent.rates(epochs - 1))
    method.end_task(task)
    stream.keep(method.memory)
    _choose(parts, task)
    parts.measured.end_task(task)
    stream.position = Position(index + 1)


def _begin(parts: Parts, task: Task) -> Tensor | None:
    """Come to a task; returns the rows that the method adds to its epochs, [S, n], if any."""
    stream, method = parts.stream, parts.method
    index, *steps_taken = stream.position
    stream.begin(task)
    parts.feed.begin_task(index)
    method.context.class_sizes = stream.class_sizes(task)
    if not any(steps_taken):
        _enter(parts, index, _BEGIN, lr=parts.descent.rates(0))
        method.begin_task(task)
    return method.extra_rows(task) if method.extra_samples(task) else None


def _enter(parts: Parts, *key: int, lr: Tensor) -> None:
    """Come to a task, epoch and step: what is drawn from now on is named after them."""
    parts.method.context.lr = lr
    parts.method.context.name_draws(*key)


def _choose(parts: Parts, task: Task) -> None:
    """Let the best candidate of each trial go on, in the places of all its candidates."""
    if parts.choosing is None:
        return
    index, apart = parts.stream.position.task, parts.stream.apart_of(task)
    scores, diverged = parts.method.own_scores, parts.measured.diverged
    parts.choosing.choose(scores, task, index, apart, diverged)
    parts.choosing.spread(network_tensors(parts), index)
