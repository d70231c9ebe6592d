"""Masked replay in a plain PyTorch loop."""

import torch
from recipe_digits import compare, tasks
from torch import nn
from torch.nn import functional as F

from remask import ReplayMemory, masked_cross_entropy


def train(masked: bool) -> nn.Module:
    """Learn one task after the other, with a memory of 100 samples."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    memory = ReplayMemory(capacity=100, seed=0)
    for classes, inputs, labels in tasks():
        active = classes if masked else range(10)  # all active: the ordinary cross-entropy
        for _ in range(5):
            for rows in torch.randperm(len(labels)).split(10):
                x, y = inputs[rows], labels[rows]
                loss = masked_cross_entropy(net(x), y, active=active, mask_value=-1.0)
                if len(memory):  # it is empty in the very first step
                    old = memory.draw(10)
                    loss = loss + F.cross_entropy(net(old.inputs), old.labels)  # unmasked
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                memory.add(x, y)
    return net


if __name__ == "__main__":
    compare(train)
