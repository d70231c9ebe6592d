"""Predicting with the current state of a learner, and measuring it on held-out samples."""

from torch import Tensor

from remask.data.readers import SampleReader
from remask.learner.calibration import Novelty, unknown_test
from remask.learner.calibration import abstention as find_abstention
from remask.learner.errors import LearnerError, NoHeldOutError, learnt_nothing
from remask.learner.folder import LearnerFolder
from remask.learner.model import Model
from remask.learner.predictions import Predictions
from remask.learner.samples import HeldOut, kept_rows, memory_of
from remask.learner.scoring import Scorer, make_scorer, score, source_batches
from remask.learner.statistics import POOLED, ClassFiles, pooled_of
from remask.methods.statistics import ClassStatistics

_TRIES = 5  # to read a learner that other processes change


class Predictor:
    """Predicts with the state of a learner, which is loaded when it is first needed."""

    def __init__(self, folder: LearnerFolder, model: Model) -> None:
        self._folder, self._model = folder, model
        self._scorer: tuple[int, Scorer] | None = None  # of a generation
        self._novelty: tuple[Scorer, Novelty, Tensor] | None = None  # distances of held-out samples

    def scorer(self) -> Scorer:
        """Return the module that predicts, loaded when it is first needed.

        If another process has replaced the files meanwhile, it is that of the newest generation.
        """
        for attempt in range(_TRIES):
            generation = self._folder.manifest.generation
            if self._scorer is not None and self._scorer[0] == generation:
                break
            if not self._folder.manifest.known:
                raise learnt_nothing(self._folder.path)
            try:
                state = self._folder.read_state()
                self._scorer = generation, make_scorer(self._folder.manifest, state, self._model)
            except LearnerError:
                self._folder.refresh()
                if self._folder.manifest.generation == generation or attempt == _TRIES - 1:
                    raise
        assert self._scorer is not None
        return self._scorer[1]

    def predictions(
        self, source: SampleReader, top: int, abstain: float | None, unknown: float | None
    ) -> tuple[Predictions, Tensor, Tensor | None]:
        """Return predictions, scores [n, C], and if asked distances [n] from known classes."""
        _check_share("abstain", abstain, "accuracy wanted", "0.9")
        _check_share("unknown", unknown, "false-alarm rate", "0.05")
        module, data = self.scorer(), self._folder.manifest.data
        abstention = test = distances = None
        assert data is not None
        batches = source_batches(module, source, data)
        scores, features = score(module, batches, data, self._model, features=unknown is not None)
        if abstain is not None:
            abstention = find_abstention(*self.held_out_scores(), abstain)
        if unknown is not None and features is not None:
            novelty, known = self._distances()
            test, distances = unknown_test(known, unknown), novelty.distances(features)
        predicted = Predictions.of(
            scores,
            tuple(self._folder.manifest.known),
            source.sources,
            top,
            abstention=abstention,
            unknown_test=test,
            distances=distances,
        )
        return predicted, scores, distances

    def _held_out(self) -> tuple[HeldOut, dict[str, Tensor]]:
        """Return held-out samples of known classes, and the state.

        Without a memory, they are drawn from the statistics of held-out samples.
        """
        self.scorer()
        manifest, state = self._folder.manifest, self._folder.read_state()
        if manifest.settings.memory == 0 and manifest.exact:
            files = ClassFiles(self._folder, manifest)
            held = files.held_out(manifest.statistics, manifest.settings.seed)
        else:
            held = HeldOut.of(state, kept_rows(self._folder))
        held = held.known_to(manifest)
        if not len(held):
            raise NoHeldOutError(
                "the learner has no held-out samples, which `abstain`, `unknown` and the confusion "
                "matrix are measured on: classes need at least two samples each, and a memory"
            )
        return held, state

    def held_out_scores(self) -> tuple[Tensor, Tensor]:
        """Return calibrated scores [n, C] of held-out samples, and their true columns [n]."""
        held, _ = self._held_out()
        assert self._folder.manifest.data is not None
        scores, _ = score(self.scorer(), held.batches(), self._folder.manifest.data, self._model)
        return scores, held.truth(self._folder.manifest)

    def _distances(self) -> tuple[Novelty, Tensor]:
        """Return what measures distances from known classes, and those of held-out samples [n].

        They are computed once for a generation.
        """
        module, data = self.scorer(), self._folder.manifest.data
        assert data is not None
        if self._novelty is not None and self._novelty[0] is module:
            return self._novelty[1:]
        held, state = self._held_out()
        if any(name.startswith(POOLED) for name in state):
            stats = pooled_of(state)
        else:
            sources, labels = memory_of(state)
            if not len(labels):
                raise LearnerError(
                    f"unknown samples cannot be found: the method "
                    f"{self._folder.manifest.settings.method!r} keeps neither statistics of "
                    f"features nor samples in the memory"
                )
            memory = HeldOut(held.rows, sources, labels, labels)
            _, features = score(module, memory.batches(), data, self._model, features=True)
            assert features is not None
            stats = ClassStatistics.empty(self._folder.manifest.outputs, features.shape[1])
            stats.add(features, labels)
        novelty = Novelty(stats)
        _, features = score(module, held.batches(), data, self._model, features=True)
        assert features is not None
        self._novelty = module, novelty, novelty.distances(features)
        return self._novelty[1:]


def _check_share(name: str, value: object, meaning: str, example: str) -> None:
    """Raise LearnerError unless a value is None or a number between 0 and 1."""
    if value is None or (type(value) in (int, float) and 0 < value < 1):  # type: ignore[operator]
        return
    raise LearnerError(
        f"{name}={value!r:.60}: give the {meaning} as a number between 0 and 1, such as {example}"
    )
