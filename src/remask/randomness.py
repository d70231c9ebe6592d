"""Random number generators that belong to one trial and one purpose.

A generator is a pure function of its name: (trial seed, purpose, and optionally a task, an epoch).
So a trial draws the same numbers alone or in any stack, and no random state has to be saved.
"""

import hashlib

import numpy as np


def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """Return the generator named (seed, purpose, *key)."""
    return np.random.Generator(np.random.PCG64(_digest(seed, purpose, key)))


def torch_seed(seed: int, purpose: str, *key: int) -> int:
    """Return a seed for torch's generators, for code that draws from them (initialisers)."""
    return _digest(seed, purpose, key) % 2**63


def _digest(seed: int, purpose: str, key: tuple[int, ...]) -> int:
    name = "/".join([str(seed), purpose, *map(str, key)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "big")
