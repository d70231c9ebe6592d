"""The state of a stack: every tensor that changes while it learns, by name.

Random numbers have no state (see `remask.randomness`), so these tensors and the stack's position
are all there is to save.
"""

import torch
from torch import Tensor

from remask.engine.fitting import check_fit
from remask.engine.growing import grown_state
from remask.engine.loss_log import LOG
from remask.engine.parts import Parts
from remask.engine.stream import Position
from remask.streams import StreamError

State = dict[str, Tensor]

GROWING = ("metrics/", "validation/", "stream/", "method/", "choices/")
"""The prefixes of the names of tensors that grow with the tasks of an open stream."""
_SHARED = ("stream/counts", "stream/steps", "choices/", LOG)  # by the candidates of a trial


def state_of(parts: Parts) -> State:
    """All tensors of a stack; the live ones, not copies."""
    named = {"net": parts.net.state(), "method": parts.method.state()}
    if parts.descent.adamw is not None:
        named["optimizer"] = parts.descent.adamw.state()
    if parts.feed.reservoir is not None:
        named["memory"] = parts.feed.reservoir.state()
    named |= parts.measured.state()
    named["stream"] = parts.stream.state()
    if parts.choosing is not None:
        named["choices"] = parts.choosing.state()
    if parts.log is not None:
        named["log"] = parts.log.state()
    return {f"{part}/{name}": tensor for part, own in named.items() for name, tensor in own.items()}


def bytes_kept(parts: Parts, trials: int) -> int:
    """What each of so many trials keeps from task to task; see `TrialStack.memory_bytes`."""
    reservoir, memory, stream = parts.feed.reservoir, parts.method.memory, parts.stream
    stores = [parts.method.state(), {} if reservoir is None else reservoir.state()]
    kept = sum(tensor.nbytes for store in stores for tensor in store.values()) // trials
    if memory is None or stream.open:
        return kept
    inputs = stream.samples.inputs
    sample = inputs[:1].nbytes if isinstance(inputs, Tensor) else 0
    return kept + memory.filled * sample


def network_tensors(parts: Parts) -> list[Tensor]:
    """Those in which every network has its own part."""
    return [tensor for name, tensor in state_of(parts).items() if not name.startswith(_SHARED)]


@torch.no_grad()
def restore(parts: Parts, state: State, position: Position) -> None:
    """Go back to a saved state; refuses one that does not fit before it changes anything."""
    logged, state = _without_log(state)
    _, own = _without_log(state_of(parts))
    if parts.stream.open:
        check_fit(state, own, "this stack", growing=GROWING)
        parts.stream.grow_as(state)
        parts.method.grow_as(state)
        if parts.choosing is not None:
            parts.choosing.grow_as(state)
        _, own = _without_log(state_of(parts))
    check_fit(state, own, "this run")
    for name, tensor in own.items():
        tensor.copy_(state[name])
    if parts.log is not None:
        parts.log.restore(logged)
    parts.stream.position = Position(*position)
    parts.measured.restored()


def grow_from(parts: Parts, state: State, position: Position) -> None:
    """Go on from a state that was saved with fewer classes; see `TrialStack.grow_from`."""
    if parts.stream.position != Position():
        raise StreamError("only a stack that has learnt nothing yet can take over a state")
    grown = grown_state(
        _without_log(state)[1],
        _without_log(state_of(parts))[1],
        net=parts.net,
        method=type(parts.method),
        absent_logits=parts.feed.absent_logits(),
        input_shape=parts.stream.data.input_shape,
    )
    restore(parts, grown, position)


def _without_log(state: State) -> tuple[State, State]:
    """What was logged, by its own names, and everything else."""
    logged = {name.removeprefix(LOG): state[name] for name in state if name.startswith(LOG)}
    return logged, {name: state[name] for name in state if not name.startswith(LOG)}
