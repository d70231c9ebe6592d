"""Whether two machines compute the same bits: pinned results are compared exactly only if so."""

import hashlib

import torch


def arithmetic() -> str:
    """A hash of a short training run in plain torch, which differs where the arithmetic does."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn((2, 20, 64), generator=generator)
    labels = torch.randint(10, (40,), generator=generator)
    shapes = [(2, 64, 100), (2, 100, 100), (2, 100, 10)]
    weights = [(0.1 * torch.randn(shape, generator=generator)).requires_grad_() for shape in shapes]
    for _ in range(50):
        hidden = torch.relu(torch.relu(inputs @ weights[0]) @ weights[1])
        logits = (hidden @ weights[2]).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.data -= 0.1 * gradient
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.detach().numpy().tobytes())
    return digest.hexdigest()
