"""What must hold for any stream and any config."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remask.config import TrialConfig, read_mask
from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.methods import METHODS

pinned = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def _streams(draw: st.DrawFn) -> tuple[tuple[tuple[int, ...], ...], dict[str, Any]]:
    """Tasks of any sizes, the classes in any order, and settings that may not fit them well."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    order = draw(st.permutations(range(sum(sizes))))
    tasks, start = [], 0
    for size in sizes:
        tasks.append(tuple(order[start : start + size]))
        start += size
    changes = {
        "net": "mlp",
        "epochs": draw(st.integers(1, 2)),
        "batch": draw(st.integers(1, 40)),
        "buffer": draw(st.integers(1, 30)),
        "replay_batch": draw(st.integers(1, 12)),
        "task_free": draw(st.booleans()),
    }
    return tuple(tasks), changes


@pytest.mark.thorough
@settings(pinned, max_examples=12)
@given(chosen=_streams(), method=st.sampled_from(sorted(METHODS)), stop=st.floats(0, 1))
def test_any_stream_can_be_learnt_left_and_gone_on_with(
    config: Callable[..., TrialConfig],
    tiny_benchmark: Callable[..., Benchmark],
    chosen: tuple[tuple[tuple[int, ...], ...], dict[str, Any]],
    method: str,
    stop: float,
) -> None:
    tasks, changes = chosen
    benchmark = tiny_benchmark(tasks)
    kind = METHODS[method]
    if not kind.trains_net:
        changes = {**changes, "epochs": 1}
    least = kind.least_buffer(benchmark.num_tasks, benchmark.num_classes)
    if changes["buffer"] < least:
        with pytest.raises(ValueError, match=f"buffer >= {least}`"):
            TrialStack([config(method=method, **changes)], benchmark)
        changes = {**changes, "buffer": least}
    if kind.uses_tasks and changes["task_free"]:
        with pytest.raises(ValueError, match="needs task boundaries"):
            TrialStack([config(method=method, **changes)], benchmark)
        changes = {**changes, "task_free": False}
    masks = [None] if kind.unmaskable else [None, -1.0, -math.inf]
    configs = [
        config(method=method, mask=mask, seed=seed, **changes) for seed, mask in enumerate(masks)
    ]

    whole = TrialStack(configs, benchmark)
    positions = list(whole.run())
    assert whole.steps_done == whole.total_steps == len(positions) - len(whole.tasks)

    left = TrialStack(configs, benchmark)
    steps = left.run()
    for _ in range(int(stop * len(positions))):
        next(steps)
    resumed = TrialStack(configs, benchmark)
    resumed.restore({k: v.clone() for k, v in left.state().items()}, left.position)
    assert list(resumed.run()) == positions[int(stop * len(positions)) :]
    for name, tensor in whole.state().items():
        assert torch.equal(tensor.nan_to_num(-1), resumed.state()[name].nan_to_num(-1)), name

    for result in whole.results():
        matrix = torch.tensor(result.class_il)
        assert matrix.shape == (len(tasks), len(tasks))
        unseen = torch.ones_like(matrix).triu(1).bool()
        assert matrix[unseen].isnan().all()
        if not kind.class_il:
            assert matrix.isnan().all()
            continue
        assert ((matrix[-1] >= 0) & (matrix[-1] <= 100)).all()
        assert (torch.tensor(result.task_il)[-1] >= matrix[-1]).all()  # fewer classes compete


@settings(pinned, max_examples=100)
@given(value=st.one_of(st.text(max_size=6), st.floats(), st.integers(), st.booleans(), st.binary()))
def test_a_mask_is_read_as_none_auto_or_a_number_below_infinity_or_refused(value: object) -> None:
    try:
        mask = read_mask(value)
    except ValueError:
        return
    assert mask in (None, "auto") or float(mask) < math.inf
    assert read_mask(mask) == mask


def test_what_is_no_number_below_infinity_is_no_mask(config: Callable[..., TrialConfig]) -> None:
    for value in (math.inf, "inf", math.nan, "nan", True):
        with pytest.raises(ValueError, match=r"in \[-inf, 0\], not"):
            read_mask(value)
        with pytest.raises(ValueError, match=r"in \[-inf, 0\], not"):
            config(mask=value, positive_mask=True)


def test_a_mask_above_0_must_be_meant(config: Callable[..., TrialConfig]) -> None:
    for value in (1, 0.5, "1"):
        with pytest.raises(ValueError, match=r"in \[-inf, 0\] unless positive_mask"):
            config(mask=value)
        assert config(mask=value, positive_mask=True).mask == float(value)
    for mask in (0.0, -1.0, -math.inf, None):
        with pytest.raises(ValueError, match="positive_mask needs a mask above 0"):
            config(mask=mask, positive_mask=True)
