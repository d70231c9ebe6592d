"""A config that contradicts what it is run with is refused."""

import functools
from typing import Any

import pytest
import torch

from remask.data.benchmark import Benchmark, load_benchmark
from remask.engine import ContradictionError, DataDescription, TrialStack
from remask.methods import ER, DERpp, Method, Step
from remask.nets.builders import NetBuilder, mlp
from remask.nets.resnet import resnet18
from tests.engine.stack_samples import MakeConfig, small_mlp


class Mine(Method):
    def loss(self, step: Step) -> Any:
        return step.stream_loss()


class Wider(ER):
    @classmethod
    def adapt_net(cls, build: NetBuilder, num_tasks: int) -> NetBuilder:
        return build


WORDS = DataDescription((5,), 4, name="tiny", input_type=torch.int64, scale=1.0)
ON_DISK: dict[str, Any] = {"earlier_samples": []}


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({"method": "derp"}, {}, "did you mean 'derpp'"),
        ({"method": "er", "buffer": 0}, {}, "needs `buffer >= 1`, got 0"),
        ({"method": "gss", "replay_batch": 0}, {}, "needs `replay_batch >= 1`"),
        ({"method": "sgd", "memory": "balanced"}, {}, "no reservoir: leave out memory='balanced'"),
        ({"method": "icarl", "memory": "balanced"}, {}, "no reservoir: leave out memory='balanc"),
        ({"method": "er_las", "weights": {"tau": 1.0, "window": 0.5}}, {}, "window >= 1"),
        ({"mask": "auto", "method": "sgd", "buffer": 0, "replay_batch": 0}, {}, "has no memory"),
        ({"mask": "auto", "method": "icarl"}, {}, "iCaRL does not support a mask"),
        ({"mask": "auto", "method": "er", "task_free": True}, {}, "task_free"),
        ({"mask": "auto", "fade": 4.0}, {}, "fade needs a mask other"),
        ({"method": "er"}, ON_DISK, "need tasks that arrive one by one"),
        ({"method": "gss"}, {"data": "open", **ON_DISK}, "copies the samples it keeps"),
        ({"memory": "merging"}, {"data": "open", **ON_DISK}, "changes the kept samples"),
        ({"memory": "merging"}, {"data": WORDS}, "averages samples, which int64 inputs"),
        ({"method": "joint"}, {"data": "open"}, "learns all tasks at once, so it needs a benchm"),
        (
            {"method": "wider"},
            {"data": "open", "method": Wider},
            "Wider needs the number of tasks: it adapts its net to their number",
        ),
    ],
)
def test_settings_that_do_not_fit_the_method_or_the_data_are_refused(
    config: MakeConfig,
    tiny: Benchmark,
    settings: dict[str, Any],
    options: dict[str, Any],
    message: str,
) -> None:
    given = {"data": tiny, "build_net": small_mlp, **options}
    data = given.pop("data")
    with pytest.raises(ValueError, match=message):
        TrialStack(
            [config(**settings)], DataDescription.of(tiny) if data == "open" else data, **given
        )


@pytest.fixture
def digits_config(config: MakeConfig) -> MakeConfig:
    return functools.partial(config, benchmark="split-digits", method="sgd", net="mlp", buffer=0)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"benchmark": "split-mnist"}, "'split-mnist', but the benchmark given is 'split-digits'"),
        ({"benchmark": "split-mnist", "limit": 5}, "the benchmark given is 'split-digits'"),
        ({"benchmark": "my_data:digits"}, "the benchmark given is 'split-digits'"),
        ({"tasks": 2}, "tasks=2, but the benchmark given was loaded without tasks"),
        ({"class_order": 3}, "class_order=3, but the benchmark given was loaded without"),
        ({"limit": 5}, "limit=5, but the benchmark given was loaded without limit"),
    ],
)
def test_a_config_of_another_benchmark_is_refused(
    digits_config: MakeConfig, digits: Benchmark, says: dict[str, Any], message: str
) -> None:
    with pytest.raises(ContradictionError) as refused:
        TrialStack([digits_config(**says)], digits)
    assert message in str(refused.value)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    "split",
    [{"tasks": 2}, {"class_order": 3}, {"tasks": 3, "class_order": (1, 0, *range(2, 10))},
     {"limit": 5}],
)  # fmt: skip
def test_a_benchmark_with_another_split_needs_it_in_the_config(
    digits_config: MakeConfig, split: dict[str, Any]
) -> None:
    benchmark = load_benchmark("split-digits", **split)
    with pytest.raises(ContradictionError, match=f"loaded with {next(iter(split))}="):
        TrialStack([digits_config()], benchmark)
    stack = TrialStack([digits_config(**split)], benchmark)
    next(stack.run())
    assert stack.results()[0].tasks == benchmark.tasks


def test_an_own_benchmark_is_called_what_it_was_loaded_by(
    digits_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "own_digits.py").write_text(
        "import remask\ndef quick():\n    return remask.load_benchmark('split-digits', limit=3)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = load_benchmark("own_digits:quick", tasks=2)
    assert loaded.name == "own_digits:quick"
    next(TrialStack([digits_config(benchmark=loaded.name, tasks=2)], loaded).run())


NARROW = functools.partial(mlp, hidden=(4,))


@pytest.mark.parametrize(
    ("name", "given", "right"),
    [
        ("er", ER, True), ("er", DERpp, False), ("er", Mine, False), ("mser", Mine, False),
        ("mine", Mine, True), ("anywhere:Mine", Mine, True), ("anywhere:Other", Mine, False),
        ("mlp", mlp, True), ("mlp", small_mlp, False), ("resnet18", small_mlp, False),
        ("resnet18:20", resnet18, False), ("small-mlp", small_mlp, True),
        ("anywhere:small_mlp", small_mlp, True), ("anywhere:other", small_mlp, False),
        ("mlp", NARROW, False), ("narrow", NARROW, True),
    ],
)  # fmt: skip
def test_no_method_or_net_is_run_under_the_name_of_another(
    config: MakeConfig, tiny: Benchmark, name: str, given: Any, right: bool
) -> None:
    option: dict[str, Any]
    if isinstance(given, type):
        single, option = config(method=name, net="mlp", weights={}), {"method": given}
        message = f"method='{name}', but method='{given.__name__}' is given"
    else:
        single, option = config(method="er", net=name), {"build_net": given}
        message = f"net='{name}', but net=.* is given"
    if right:
        next(TrialStack([single], tiny, **option).run())
        return
    with pytest.raises(ContradictionError, match=message):
        TrialStack([single], tiny, **option)
