"""AdamW on a stack is torch's AdamW on every net by itself."""

import torch
from torch.nn.functional import cross_entropy

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import DataDescription, TrialStack
from tests.engine.stack_samples import MakeConfig, small_mlp


def adamw_stack(configs: list[TrialConfig], benchmark: Benchmark) -> TrialStack:
    data = DataDescription.of(benchmark)
    return TrialStack(configs, data, build_net=small_mlp, optimizer="adamw")


def test_steps_are_those_of_torch(config: MakeConfig, tiny: Benchmark) -> None:
    whole = len(tiny.train_labels)
    configs = [
        config(method="sgd", seed=seed, lr=lr, batch=whole, epochs=6, buffer=0, replay_batch=0)
        for seed, lr in ((0, 0.01), (1, 0.003))
    ]
    stack = adamw_stack(configs, tiny)
    nets = [stack.net(trial).train() for trial in range(2)]
    stack.learn(stack.new_task(tiny.train_inputs, tiny.train_labels))
    for trial, net in enumerate(nets):
        optimizer = torch.optim.AdamW(net.parameters(), lr=configs[trial].lr)
        for _ in range(6):
            optimizer.zero_grad()
            loss = cross_entropy(net(tiny.train_inputs * tiny.scale), tiny.train_labels)
            torch.autograd.backward(loss)
            optimizer.step()
        found = stack.net(trial).state_dict()
        for name, expected in net.state_dict().items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6)
