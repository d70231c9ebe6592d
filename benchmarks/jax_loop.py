"""DER++ trials in JAX, jitted and scanned over steps: what `speed.py` compares with.

Runs in an environment of its own with JAX: `python jax_loop.py DATA.npz TRIALS REPLAY WIDTH`. The
data has train and test samples of each task; bytes are divided by 255. Planning, training and
evaluation are timed after one warm-up that compiles; prints the milliseconds per step and trial,
and the mean accuracy.
"""

import sys
import time
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

BATCH, BUFFER, LR, ALPHA, BETA = 10, 200, 0.03, 0.2, 1.0


def decoded(inputs):
    return inputs.astype(jnp.float32) / 255 if inputs.dtype == jnp.uint8 else inputs


def logits_of(net, inputs):
    for weight, bias in net[:-1]:
        inputs = jax.nn.relu(inputs @ weight + bias)
    weight, bias = net[-1]
    return inputs @ weight + bias


def cross_entropy(logits, labels):
    own = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -own.mean()


@partial(jax.jit, donate_argnums=(0, 1))
@partial(jax.vmap, in_axes=(0, 0, 0, None, None))
def train(net, memory, plan, inputs, labels):
    """Learn one task: every step of the plan."""

    def step(carry, plan):
        net, (rows, logits) = carry
        places, draws, slots, weight = plan
        drawn = rows[draws.reshape(-1)]
        samples = decoded(jnp.concatenate([inputs[places], inputs[drawn]]))

        def loss(net):
            found = logits_of(net, samples)
            stream, recalled, relearnt = jnp.split(found, [BATCH, BATCH + draws.shape[1]])
            distance = ((recalled - logits[draws[0]]) ** 2).mean()
            again = cross_entropy(relearnt, labels[rows[draws[1]]])
            value = cross_entropy(stream, labels[places]) + weight * (
                ALPHA * distance + BETA * again
            )
            return value, stream

        slopes, stream = jax.grad(loss, has_aux=True)(net)
        net = jax.tree.map(lambda p, g: p - LR * g, net, slopes)
        rows = rows.at[slots].set(places, mode="drop")
        logits = logits.at[slots].set(stream, mode="drop")
        return (net, (rows, logits)), None

    return jax.lax.scan(step, (net, memory), plan)[0]


@jax.jit
def correct(nets, inputs, labels):
    """The shares of correct predictions, [S]."""
    inputs = decoded(inputs)
    return jax.vmap(lambda net: (logits_of(net, inputs).argmax(1) == labels).mean())(nets)


def plan_of(random, rows, seen, replay):
    steps = len(rows) // BATCH
    places = random.permutation(rows)[: steps * BATCH].astype(np.int32)
    numbers = np.arange(seen, seen + len(places))
    drawn = random.integers(0, numbers + 1)
    slots = np.where(numbers < BUFFER, numbers, np.where(drawn < BUFFER, drawn, BUFFER))
    filled = np.minimum(BUFFER, seen + BATCH * np.arange(steps))
    draws = random.random((steps, 2, replay)) * np.maximum(filled, 1)[:, None, None]
    return (
        places.reshape(steps, BATCH),
        draws.astype(np.int32),
        slots.reshape(steps, BATCH).astype(np.int32),
        (filled > 0).astype(np.float32),
    )


def trial(data, trials, replay, width):
    """Learn all tasks, measured after each; returns steps and the mean accuracy."""
    sizes = [data["inputs"].shape[1], width, width, 10]
    randoms = [np.random.default_rng(seed) for seed in range(trials)]

    def layer(i, o):
        bound = 1 / np.sqrt(i)
        shapes = ((i, o), (o,))
        return tuple(
            np.stack([r.uniform(-bound, bound, s) for r in randoms]).astype("f4") for s in shapes
        )

    nets = [layer(i, o) for i, o in pairwise(sizes)]
    nets = jax.tree.map(jnp.asarray, nets)
    memory = (jnp.zeros((trials, BUFFER), jnp.int32), jnp.zeros((trials, BUFFER, 10)))
    seen, shares = 0, []
    for task in range(5):
        rows = data["rows"][data["task"] == task]
        plans = [plan_of(random, rows, seen, replay) for random in randoms]
        plan = tuple(np.stack(parts) for parts in zip(*plans, strict=True))
        nets, memory = train(nets, memory, plan, data["inputs"], data["labels"])
        seen += plan[0].shape[1] * BATCH
        shares = [correct(nets, *data["tests"][own]).mean() for own in range(task + 1)]
    return seen // BATCH, float(np.mean(shares))


def main():
    loaded = np.load(sys.argv[1])
    trials, replay, width = map(int, sys.argv[2:])
    data = {name: loaded[name] for name in ("rows", "task")}
    data |= {name: jnp.asarray(loaded[name]) for name in ("inputs", "labels")}
    data["tests"] = [
        (jnp.asarray(loaded[f"test{task}"]), jnp.asarray(loaded[f"answers{task}"]))
        for task in range(5)
    ]
    trial(data, trials, replay, width)
    times = []
    for _ in range(3):
        began = time.process_time()
        steps, accuracy = trial(data, trials, replay, width)
        times.append((time.process_time() - began) / steps / trials * 1000)
    print(sorted(times)[1], accuracy)


main()
