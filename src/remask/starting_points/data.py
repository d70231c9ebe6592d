"""Custom data: a function that takes nothing and returns a benchmark.

remask check er --benchmark starting_point:starting_point
remask run --benchmark starting_point:starting_point --method er --buffer 20 \
    --lr 0.1 --batch 10 --replay-batch 10 --epochs 1
"""

import torch
from torch.utils.data import Dataset, TensorDataset

from remask import Benchmark
from remask.data.user_data import from_dataset


def starting_point() -> Benchmark:
    """Four classes in two tasks of two classes.

    Every process calls it, also when a run is resumed, so it must return the same data each time:
    seed its random numbers.
    """
    # Random data; put yours here: any torch Dataset of (input, label), with labels from 0 on. A
    # fifth of each class is kept for testing, unless you pass another Dataset as `test`.
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 4
    inputs = torch.randn(200, 16, generator=random) + labels.view(-1, 1)
    dataset: Dataset[tuple[torch.Tensor, ...]] = TensorDataset(inputs, labels)
    return from_dataset(dataset, tasks=2, name="starting_point")

    # Or a folder of images, CLASS/NAME.png or .jpg, with `image_folder` of the same module:
    #     image_folder("photos", tasks=[["ant", "bee"], ["cat"]], size=32, name="starting_point")
    # Or arrays in files, with `arrays`; large ones are memory-mapped and shared:
    #     arrays(("inputs.npy", "labels.npy"), tasks=2, name="starting_point")
