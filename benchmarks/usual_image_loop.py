"""DER++ on images as it is commonly written: what the engine's ResNet step is measured against.

A DataLoader whose dataset crops, mirrors and normalises one image at a time, a memory of raw images
that are transformed one by one when they are drawn, three forwards in the default memory layout,
and torch.optim.SGD.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from textbook_loop import TextbookBuffer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark


class Augmentation:
    """A random crop after padding, a mirror image one time in two, floats, normalised."""

    def __init__(self, benchmark: Benchmark) -> None:
        assert benchmark.mean is not None
        assert benchmark.std is not None
        self.padding, self.scale = benchmark.crop_padding, benchmark.scale
        self.mean = torch.tensor(benchmark.mean).view(-1, 1, 1)
        self.std = torch.tensor(benchmark.std).view(-1, 1, 1)

    def __call__(self, image: Tensor) -> Tensor:
        """One image, uint8 [C, H, W], as the net sees it."""
        height, width = image.shape[1:]
        padded = F.pad(image, (self.padding,) * 4)
        top, left = torch.randint(2 * self.padding + 1, (2,)).tolist()
        view = padded[:, top : top + height, left : left + width]
        if torch.rand(()) < 0.5:
            view = view.flip(2)
        return (view.float() * self.scale - self.mean) / self.std


class AugmentedImages(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Train images one at a time: (as the net sees it, its label, as it is)."""

    def __init__(self, benchmark: Benchmark, augment: Augmentation) -> None:
        self.images, self.labels = benchmark.train_inputs, benchmark.train_labels
        self.augment = augment

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        image = self.images[index]
        return self.augment(image), self.labels[index], image


class UsualTrial:
    """One DER++ trial on a benchmark with a single task."""

    def __init__(self, net: nn.Module, config: TrialConfig, benchmark: Benchmark) -> None:
        self.net, self.config = net, config
        self.augment = Augmentation(benchmark)
        self.images = AugmentedImages(benchmark, self.augment)
        self.buffer = TextbookBuffer(
            config.buffer, benchmark.input_shape, benchmark.num_classes, torch.uint8
        )
        self.optimiser = torch.optim.SGD(net.parameters(), lr=config.lr)

    def steps(self) -> Iterator[None]:
        """Train for an epoch, yielding after every step."""
        self.net.train()
        for images, labels, raw in DataLoader(
            self.images, batch_size=self.config.batch, shuffle=True, num_workers=0
        ):
            self.step(images, labels, raw)
            yield

    def step(self, images: Tensor, labels: Tensor, raw: Tensor) -> None:
        """Learn from a batch and two draws, then remember the batch."""
        config, buffer = self.config, self.buffer
        self.optimiser.zero_grad()
        outputs = self.net(images)
        loss = F.cross_entropy(outputs, labels)
        if buffer.seen:
            drawn, _, logits = buffer.get_data(config.replay_batch)
            loss = loss + config.alpha * F.mse_loss(self.net(self.augmented(drawn)), logits)
            drawn, old_labels, _ = buffer.get_data(config.replay_batch)
            loss = loss + config.beta * F.cross_entropy(self.net(self.augmented(drawn)), old_labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        buffer.add_data(raw, labels, outputs.detach())

    def augmented(self, images: Tensor) -> Tensor:
        """Images of the memory as the net sees them."""
        return torch.stack([self.augment(image) for image in images])
