"""The hooks that the callbacks share, in a plain loop, and the callbacks in their frameworks."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask import ReplayMemory, masked_cross_entropy
from remask.integrations import ReplayHooks
from tests.command_line import run_process
from tests.repository import ROOT


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5))


def batch(*labels: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(sum(labels))
    return torch.randn(len(labels), 3, generator=generator), torch.tensor(labels)


@pytest.mark.parametrize("active", [None, [2, 3]])
@pytest.mark.parametrize("m", [-1.0, -float("inf")])
def test_the_loss_of_the_model_becomes_that_of_masked_replay(active: Any, m: float) -> None:
    model, memory = net(), ReplayMemory(20)
    hooks = ReplayHooks(memory, active, mask_value=m, replay=4)
    hooks.attach(model)
    x, y = batch(2, 3, 3)
    joined, labels = hooks.extend(x, y)
    assert joined is x  # the memory was empty
    expected = masked_cross_entropy(net()(x), y, [2, 3], m)
    torch.testing.assert_close(F.cross_entropy(model(joined), labels), expected)
    for old in ((0, 1), (0, 4)):
        memory.add(*batch(*old))
    again = ReplayMemory(20)
    again.load_state_dict(memory.state_dict())
    x, y = batch(3, 2)
    joined, labels = hooks.extend(x, y)
    replayed = again.draw(4)
    assert torch.equal(joined, torch.cat([x, replayed.inputs]))
    loss = F.cross_entropy(model(joined), labels)
    plain = net()
    parts = (
        masked_cross_entropy(plain(x), y, [2, 3], m, reduction="sum"),
        F.cross_entropy(plain(replayed.inputs), replayed.labels, reduction="sum"),
    )
    torch.testing.assert_close(loss, sum(parts) / 6)
    assert len(memory) == 9
    assert torch.equal(model.eval()(x), plain(x))
    hooks.detach()
    assert torch.equal(model.train()(x), plain(x))


def test_batches_by_name_and_labels_of_every_token() -> None:
    memory, head = ReplayMemory(20), nn.Conv1d(2, 6, 1)
    hooks = ReplayHooks(memory, [1, 2], head=head)
    hooks.attach(head)
    named = {"ids": torch.ones(2, 4), "labels": torch.tensor([[1, 2, -100], [2, 2, 1]]), "more": 1}
    hooks.extend_named(named)
    joined = hooks.extend_named(named)
    assert {name: len(joined[name]) for name in ("ids", "labels")} == {"ids": 4, "labels": 4}
    assert joined["more"] == 1
    logits = hooks._mask(head, None, torch.zeros(4, 3, 6))
    assert logits is not None
    assert (logits[:2, :, [0, 3, 4, 5]] == -1).all()
    assert (logits[:2, :, [1, 2]] == 0).all()
    assert (logits[2:] == 0).all()


def test_what_cannot_be_masked_is_refused() -> None:
    hooks = ReplayHooks(ReplayMemory(3))
    with pytest.raises(ValueError, match="no linear layer; pass the module"):
        hooks.attach(nn.ReLU())
    with pytest.raises(ValueError, match="needs `labels` in each batch, found"):
        hooks.extend_named({"x": torch.zeros(2)})
    with pytest.raises(ValueError, match="mask_value is 1"):
        ReplayHooks(ReplayMemory(3), mask_value=1)


@pytest.mark.integrations
def test_a_lightning_checkpoint_brings_the_memory_back(tmp_path: Path) -> None:
    script = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
from recipe_digits import tasks
from recipe_lightning import Classifier, MaskedReplay, ReplayMemory

classes, inputs, labels = next(tasks())
memory, again = ReplayMemory(100), ReplayMemory(100)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=10)

def fit(memory, epochs, **resumed):
    options = {"accelerator": "cpu", "logger": False, "callbacks": [MaskedReplay(memory, classes)]}
    trainer = lightning.Trainer(max_epochs=epochs, **options)
    trainer.fit(Classifier(), loader, **resumed)
    return trainer

fit(memory, 1).save_checkpoint("saved.ckpt")
fit(again, 1, ckpt_path="saved.ckpt", weights_only=False)
assert len(again) == len(memory) == 100
for drawn, other in zip(memory.draw(10)[:2], again.draw(10)[:2], strict=True):
    assert torch.equal(drawn, other)
print("the same")
"""
    path = {"PYTHONPATH": str(ROOT / "examples")}
    done = run_process(sys.executable, "-c", script, folder=tmp_path, environment=path)
    assert done.stdout.endswith("the same\n")
