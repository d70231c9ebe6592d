"""Random number generators that belong to one trial and one purpose.

A generator is a pure function of its name: (trial seed, purpose, perhaps a task, an epoch, ...).
Two things follow. A trial draws the same numbers alone or in any stack, and there is no random
state to save: a run that resumes in the middle of an epoch draws that epoch's plan again.
"""

import hashlib

import numpy as np


def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """The generator named (seed, purpose, *key)."""
    return np.random.Generator(np.random.PCG64(_digest(seed, purpose, key)))


def torch_seed(seed: int, purpose: str, *key: int) -> int:
    """A seed for torch's own generators, for code that draws from them (weight initialisers)."""
    return _digest(seed, purpose, key) % 2**63


def _digest(seed: int, purpose: str, key: tuple[int, ...]) -> int:
    name = "/".join([str(seed), purpose, *map(str, key)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "big")
