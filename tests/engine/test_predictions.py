"""What is shown is what predicts, and a stack that was restored predicts as it did."""

from collections.abc import Callable

import pytest
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.methods import ER
from tests.engine.stack_samples import finish

MakeConfig = Callable[..., TrialConfig]


class Opposite(ER):
    """Predicts the least likely class, as a method with a predictor of its own might."""

    name = "opposite"

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        return -self.context.net.predict(inputs) + 10 * task


def test_confidence_is_of_the_scores_that_the_accuracy_is_of(
    config: MakeConfig, tiny: Benchmark
) -> None:
    plain = finish(TrialStack([config(method="er", net="mlp")], tiny))
    single = config(method="opposite", net="mlp")
    opposite = finish(TrialStack([single], tiny, method=Opposite))
    (result,) = opposite.results()
    assert result.confidence != plain.results()[0].confidence
    for label, said in enumerate(result.confidence):
        task = next(number for number, task in enumerate(tiny.tasks) if label in task)
        rows = tiny.test_labels == label
        scores = opposite.scores(tiny.test_inputs[rows] * tiny.scale, task)[0]
        assert said == pytest.approx(float(scores.softmax(-1)[:, label].mean()), rel=1e-5)
