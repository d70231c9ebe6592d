"""The mask "auto": candidates are trained side by side, and held-out samples choose among them.

Candidate i and the default 0 are compared on held-out samples j, each class with the same weight:
w_j = 1 / (classes * samples of j's class), d_i = sum_j w_j * (right_ij - right_0j). If both were
equally good, either could be right where they differ, with equal probability, and d_i would have
the standard deviation s_i = sqrt(sum_j w_j^2 * (right_ij - right_0j)^2). The candidate with the
highest d_i - Z * s_i is chosen if that is above 0, and otherwise the default.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.config import TrialConfig
from remask.data.tasks import DataDescription, Task
from remask.engine.evaluation import Scores
from remask.names import short_number
from remask.randomness import generator
from remask.record import MaskChoice

Z = 1.0
"""How many standard deviations another candidate must be ahead of the default."""
SHARE_APART = 0.05
"""The share of every task's samples that candidates are compared on and never learn from."""
_LEAST_BUFFER = 1000
"""Below it, held-out samples cost more accuracy than a choice among candidates gains."""
_SLOTS_PER_HELD_OUT = 20
"""One in this many slots of the memory stores a held-out sample of an earlier task."""
_ROWS_AT_ONCE = 256
_EMPTY = -1  # the label of an empty slot

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """One way to mask, among several that are trained side by side."""

    mask: float | None
    fade: float = 0.0
    fade_power: float = 1.0

    @property
    def name(self) -> str:
        """As in tables: `none`, `0 fading 4`, `0 fading 16^1.5`."""
        shown = "none" if self.mask is None else short_number(self.mask)
        return f"{shown} fading {fading_name(self)}" if self.fade else shown

    def config(self, trial: TrialConfig, buffer: int) -> TrialConfig:
        """The config of a trial with this mask and buffer."""
        return trial.model_copy(update={**asdict(self), "buffer": buffer})


_CANDIDATES = (
    Candidate(0.0, fade=12.0),
    Candidate(None),
    Candidate(0.0, fade=4.0),
    Candidate(-1.0),
)
"""The first, the default, was near the best on short and long streams at all buffers. The others
are no mask, a slower fading, and the paper's mask for DER++, which does not fade."""


def fading_name(fading: Candidate | TrialConfig) -> str:
    """How a mask fades: `4`, or `16^1.5` for min(1, 16 M / n)^1.5."""
    power = "" if fading.fade_power == 1 else f"^{fading.fade_power:g}"
    return f"{fading.fade:g}{power}"


def held_out_places(buffer: int) -> int:
    """How many slots of a memory store samples that candidates are compared on."""
    return 0 if buffer < _LEAST_BUFFER else buffer // _SLOTS_PER_HELD_OUT


def candidates_of(buffer: int) -> tuple[Candidate, ...]:
    """The candidates for the mask "auto"; the first is the default."""
    return _CANDIDATES if held_out_places(buffer) else _CANDIDATES[:1]


def concrete_configs(configs: Sequence[TrialConfig]) -> list[TrialConfig]:
    """The configs to train: each trial, or all of its candidates if its mask is "auto"."""
    concrete = []
    for config in configs:
        if config.mask != "auto":
            concrete.append(config)
            continue
        buffer = config.buffer - held_out_places(config.buffer)
        concrete += [candidate.config(config, buffer) for candidate in candidates_of(config.buffer)]
    return concrete


class Choosing:
    """The held-out samples that candidates are compared on, and the choices so far.

    There are C candidates for each of S trials: S * C networks, those of a trial side by side.
    """

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        data: DataDescription,
        tasks: int,
        device: torch.device,
    ) -> None:
        """`configs` are the trials, with the mask "auto"; `tasks` the number of known tasks."""
        self._names = [candidate.name for candidate in candidates_of(configs[0].buffer)]
        self._seeds = [config.seed for config in configs]
        self._data, self._device = data, device
        self._normalise = data.normaliser(device)
        trials, places = len(configs), held_out_places(configs[0].buffer)
        shape = (trials, places, *data.input_shape)
        self._inputs = torch.zeros(shape, dtype=data.input_type, device=device)
        self._labels = torch.full((places,), _EMPTY, dtype=torch.int64)  # the same in all trials
        self._given: list[tuple[Tensor, Tensor]] = []
        each = torch.zeros((trials, tasks, len(self._names)), dtype=torch.float64)
        self._table = {
            "chosen": torch.zeros((trials, tasks), dtype=torch.int64),
            "samples": torch.zeros((trials, tasks, 2), dtype=torch.int64),
            "scores": each,
            "errors": each.clone(),
        }
        """The candidate chosen after each task, the samples compared on (of earlier tasks, and in
        all), and the scores of each candidate with their errors: [S, tasks, ...]."""

    def choose_on(self, inputs: Tensor, labels: Tensor) -> None:
        """Also compare candidates on these samples of earlier tasks from now on."""
        self._data.check("held-out", inputs, labels)
        shared = inputs.to(self._device).expand(len(self._seeds), *inputs.shape)
        self._given = [(shared, labels.cpu())]

    @torch.no_grad()
    def choose(
        self,
        scores: Scores,
        task: Task,
        index: int,
        apart: tuple[Tensor, Tensor] | None,
        diverged: Tensor,
    ) -> None:
        """Choose a candidate for each trial after the task with this index.

        `scores` takes inputs [S * C, B, *shape]. `apart` are samples of the task that were not
        learnt: inputs [S * C, n, *shape], labels [n]. `diverged` is bool [S * C].
        """
        self.grow(index + 1)
        count, filled = len(self._names), self._labels != _EMPTY
        old = [(self._inputs[:, filled.to(self._device)], self._labels[filled]), *self._given]
        new = [] if apart is None else [(apart[0][::count], apart[1])]
        labels = torch.cat([own for _, own in (*old, *new)])
        table = self._table
        table["samples"][:, index] = torch.tensor([sum(len(own) for _, own in old), len(labels)])
        if count > 1 and len(labels):
            right = torch.cat([self._right(scores, task, *part) for part in (*old, *new)], dim=2)
            usable = ~diverged.view(-1, count).cpu().numpy()
            for trial, own in enumerate(right.numpy()):
                chosen, found, errors = choice(own, labels.numpy(), usable[trial])
                table["chosen"][trial, index] = chosen
                table["scores"][trial, index] = torch.from_numpy(found)
                table["errors"][trial, index] = torch.from_numpy(errors)
        for inputs, own_labels in new:
            self._hold(index, inputs, own_labels)

    @torch.no_grad()
    def spread(self, tensors: Iterable[Tensor], index: int) -> None:
        """Copy the chosen candidate's part of tensors [S * C, ...] or [S * C * n] to all others."""
        trials, count = len(self._seeds), len(self._names)
        for tensor in tensors if count > 1 else ():
            own = len(tensor) // (trials * count)
            each = tensor.view(trials, count, own, *tensor.shape[1:])
            chosen = self._table["chosen"][:, index].to(tensor.device)
            won = each[torch.arange(trials, device=tensor.device), chosen]
            each.copy_(won.unsqueeze(1).expand_as(each))

    def networks(self, learnt: int) -> list[int]:
        """Which of the S * C networks each trial predicts with after `learnt` tasks."""
        trials = range(len(self._seeds))
        chosen = self._table["chosen"][:, :learnt].tolist()
        return [len(self._names) * trial + (chosen[trial] or [0])[-1] for trial in trials]

    def choices(self, learnt: int) -> list[tuple[MaskChoice, ...]]:
        """The choices after each of the first `learnt` tasks, for each trial."""
        tasks, trials = range(learnt), range(len(self._seeds))
        return [tuple(self._choice(trial, index) for index in tasks) for trial in trials]

    def _choice(self, trial: int, index: int) -> MaskChoice:
        own: dict[str, Any] = {n: t[trial, index].tolist() for n, t in self._table.items()}
        chosen, default = self._names[own["chosen"]], self._names[0]
        scores = dict(zip(self._names, own["scores"], strict=True))
        errors = dict(zip(self._names, own["errors"], strict=True))
        if len(scores) == 1:
            reason = "the default; the memory is too small to hold samples out"
        elif chosen == default:
            reason = "the default; no other is clearly better"
        else:
            ahead = scores[chosen] - scores[default]
            reason = f"{ahead:.1f} ±{errors[chosen]:.1f} points ahead of {default}"
        old, every = own["samples"]
        return MaskChoice(
            chosen=chosen,
            reason=reason,
            scores=scores,
            errors=errors,
            old_samples=old,
            samples=every,
        )

    def state(self) -> dict[str, Tensor]:
        """The tensors to save and restore; the live ones, not copies."""
        return {"inputs": self._inputs, "labels": self._labels, **self._table}

    def grow(self, tasks: int) -> None:
        """Make room for choices after `tasks` tasks."""
        for name, tensor in self._table.items():
            more = tensor.new_zeros(
                (len(tensor), max(0, tasks - tensor.shape[1]), *tensor.shape[2:])
            )
            self._table[name] = torch.cat([tensor, more], dim=1)

    def _right(self, scores: Scores, task: Task, inputs: Tensor, labels: Tensor) -> Tensor:
        """Whether each candidate is right about samples [S, n, *shape]: bool [S, C, n]."""
        found = []
        for some, own in zip(
            torch.split(inputs, _ROWS_AT_ONCE, dim=1),
            torch.split(labels, _ROWS_AT_ONCE),
            strict=True,
        ):
            seen = self._normalise(some)
            rated = scores(seen.repeat_interleave(len(self._names), dim=0), task.number)
            found.append(rated.argmax(-1).cpu() == own)
        return torch.cat(found, dim=1).view(len(self._seeds), len(self._names), -1)

    def _hold(self, index: int, inputs: Tensor, labels: Tensor) -> None:
        """Store samples of a task, inputs [S, n, *shape], with equal numbers of each class."""
        filled = self._labels != _EMPTY
        drawn = np.stack(
            [
                np.lexsort((generator(seed, "held-out", index).random(len(labels)), labels))
                for seed in self._seeds
            ]
        )  # [S, n]: class by class, in each trial's own order
        order = torch.from_numpy(drawn).to(self._device)
        trials = torch.arange(len(order), device=self._device).unsqueeze(1)
        every = torch.cat([self._inputs[:, filled.to(self._device)], inputs[trials, order]], dim=1)
        every_label = torch.cat([self._labels[filled], labels[torch.from_numpy(drawn[0])]])
        kept = _first_of_each_class(every_label.numpy(), len(self._labels))
        self._inputs[:, : len(kept)] = every[:, kept.to(self._device)]
        self._labels.fill_(_EMPTY)[: len(kept)] = every_label[kept]


def choice(
    right: NDArray[np.bool_], labels: NDArray[np.int64], usable: NDArray[np.bool_]
) -> tuple[int, Floats, Floats]:
    """Choose among candidates that were right [C, n] about samples with these labels [n].

    Returns the choice, the candidates' accuracies, averaged over classes, and the standard
    deviations of their distance from the first one's, [C] each and in percent. Only candidates
    that are `usable` [C] are chosen.
    """
    _, of_class, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    by_class = np.stack([np.bincount(of_class, own) for own in right])
    scores = 100 * (by_class / sizes).mean(1)
    weights, differ = 100 / (len(sizes) * sizes[of_class]), right != right[0]
    errors = np.sqrt(differ @ weights**2)
    worth = scores - scores[0] - Z * errors if usable[0] else scores
    return int(np.where(usable, worth, -np.inf).argmax()), scores, errors


def _first_of_each_class(labels: NDArray[np.int64], most: int) -> Tensor:
    """The places of `most` labels, in order: the first of every class, then the second of each."""
    order = labels.argsort(kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    rank = np.empty_like(labels)
    rank[order] = np.arange(len(labels)) - np.repeat(starts, sizes)
    return torch.from_numpy(np.sort(np.lexsort((labels, rank))[:most]))
