"""Forgetting a class: its output, its samples and what was stored with them, in every file."""

from collections.abc import Mapping

import torch

from remask.files import DurabilityError
from remask.learner.choosing import Candidate, calibrate, choose
from remask.learner.data import moments
from remask.learner.folder import (
    HELD_KEYS,
    HELD_LABELS,
    HELD_SOURCES,
    MEMORY_LABELS,
    MEMORY_LOGITS,
    MEMORY_SOURCES,
    LearnerFolder,
    Tensors,
    memory_of,
)
from remask.learner.manifest import Learnt, Manifest
from remask.learner.model import Model
from remask.learner.results import Forgotten
from remask.learner.samples import ChosenRows, HeldOut, Statistics, measured_on
from remask.learner.settings import LearnerError
from remask.learner.training import Training, make_stack
from remask.memory import EMPTY

_MOST_PASSES = 20  # over the memory, per epoch of a visit


def forget(folder: LearnerFolder, model: Model, name: str, *, retrain: bool) -> Forgotten:
    """Remove a class, all of it at once. Raises LearnerError.

    Then nothing has changed, unless the message says that the class is forgotten but a file cannot
    be removed.
    """
    before = folder.manifest
    outputs = [number for number, own in enumerate(before.classes) if own == name]
    _check_method(folder, model, retrain=retrain)
    kept, removed = _divided(folder.read_state(), outputs)
    classes = tuple(None if own == name else own for own in before.classes)
    history = tuple(visit.without(name) for visit in before.history)
    after = before.changed(classes=classes, history=history, earlier=())
    exact, retrained = True, False
    if not after.known:
        after = after.changed(**dict(Learnt()))
    else:
        after, retrained = _without(folder, model, after, kept, outputs, retrain=retrain)
        exact = after.head != "net"
    left = folder.commit(after)
    try:
        folder.visit.discard()  # its samples may be of the class
    except DurabilityError as error:
        raise LearnerError(f"{name} is forgotten, but its samples may be left: {error}") from error
    if left:
        raise LearnerError(
            f"{name} is forgotten, but {left[0]}, which may hold its samples, cannot be "
            f"removed. Fix the permissions, then open the learner again."
        )
    files = tuple(note.name for note in folder.manifest.own_files)
    return Forgotten(name, removed, files, retrained=retrained, exact=exact)


def _check_method(folder: LearnerFolder, model: Model, *, retrain: bool) -> None:
    if (method := model.method) is None:
        return
    if method.own_memory != "no":
        raise LearnerError(
            f"{method.title} chooses itself what it keeps, and no class can be removed from that. "
            f"Create a new learner without the class."
        )
    if retrain and not method.draws:
        raise LearnerError(f"{method.title} keeps no samples to retrain from: leave retrain out")
    if retrain and folder.manifest.given is not None and model.own_net is None:
        raise LearnerError(
            "retraining starts from the weights that the net was created with: open the "
            "learner with the module itself, net=..., and not with a function"
        )


def _without(
    folder: LearnerFolder,
    model: Model,
    manifest: Manifest,
    kept: Tensors,
    outputs: list[int],
    *,
    retrain: bool,
) -> tuple[Manifest, bool]:
    """Write the files of a learner without some outputs; return whether a net was retrained.

    With features, heads are computed from the statistics of the other classes, and a trained head
    is trained again.
    """
    rows, settings = folder.samples(), manifest.settings
    held, statistics = HeldOut.of(kept, rows), None
    tensors: Tensors = {}
    if manifest.data_note.features is not None and settings.heads:
        statistics = Statistics(folder, manifest, kept)
        statistics.remove(outputs)
        manifest = manifest.changed(statistics=statistics.notes)
        retrain = settings.trains(features=True) and manifest.samples is not None
    nets = []
    if retrain:
        tensors, manifest = _retrained(manifest, kept, held, model)
        nets = [Candidate("", manifest.changed(head="net"), tensors)]
    elif statistics is None:
        tensors = _cleared(kept, outputs, _class_axes(manifest, model))
        nets = [Candidate("", manifest, tensors)]
    measured = measured_on(folder, manifest, held)
    chosen, _, rated = choose(manifest, statistics, nets, measured, model)
    tensors = {**held.tensors(), **tensors, **chosen.tensors}
    if statistics is not None:
        tensors |= statistics.tensors()
    files, calibration = folder.save(tensors, rows), calibrate(rated)
    return chosen.manifest.changed(**files, calibration=calibration), retrain


def _retrained(
    manifest: Manifest, kept: Tensors, held: HeldOut, model: Model
) -> tuple[Tensors, Manifest]:
    """Train a new net on the samples in the memory, as one visit.

    A fixed number of epochs is raised so that the memory is presented as often as the visits were.
    Otherwise a new net takes far fewer steps than the net that it replaces.
    """
    data = manifest.data_note
    sources, labels = memory_of(kept)
    if not len(labels):
        raise LearnerError("the memory holds no samples of other classes to retrain from")
    memory = ChosenRows(held.rows, sources)
    if data.features is not None:  # their mean and deviation depend on the class
        seen = moments(memory, torch.arange(len(memory)).numpy())
        data = data.changed(features_seen=seen)
        manifest = manifest.changed(data=data)
    count, trained = len(labels), manifest
    if manifest.settings.epochs is not None:
        learnt = sum(sum(visit.samples.values()) for visit in manifest.history)
        epochs = manifest.settings.epochs * min(max(1, -(-learnt // count)), _MOST_PASSES)
        settings = manifest.settings.model_copy(update={"epochs": epochs})
        trained = manifest.changed(settings=settings)
    stack = make_stack(trained, model, count, seen=count, only_default=True)
    Training(stack, held, trained, model.device).run(memory, labels)
    tensors = {**stack.state(), **held.tensors()}
    tensors[MEMORY_SOURCES] = sources[tensors[MEMORY_SOURCES].cpu()]
    return tensors, manifest.changed(tasks=1)


def _divided(tensors: Tensors, outputs: list[int]) -> tuple[Tensors, int]:
    """Return a state without the samples of some outputs, and the number of these samples."""
    wanted = torch.tensor(outputs)
    held = torch.isin(tensors[HELD_LABELS], wanted)
    names = (HELD_SOURCES, HELD_LABELS, HELD_KEYS)
    kept = {**tensors, **{name: tensors[name][~held] for name in names}}
    removed = set(tensors[HELD_SOURCES][held].tolist())
    if MEMORY_SOURCES in tensors:
        labels = tensors[MEMORY_LABELS]
        own = torch.isin(labels, wanted)
        others = ~own & (labels != EMPTY)
        removed |= set(tensors[MEMORY_SOURCES][own].tolist())
        for name in {MEMORY_SOURCES, MEMORY_LABELS, MEMORY_LOGITS} & tensors.keys():
            # Slots are filled in order, so the others move together.
            kept[name] = torch.full_like(tensors[name], EMPTY if name == MEMORY_LABELS else 0)
            kept[name][: int(others.sum())] = tensors[name][others]
    return kept, len(removed)


def _class_axes(manifest: Manifest, model: Model) -> dict[str, list[int]]:
    """Return the axes of classes of each tensor in the state: those that grow with the head."""
    more = (None,) * (manifest.outputs + 1 - len(manifest.classes))
    wider = manifest.changed(classes=(*manifest.classes, *more))
    own, other = (
        make_stack(each, model, 1, seen=1, only_default=True).state() for each in (manifest, wider)
    )
    return {
        name: [axis for axis, size in enumerate(tensor.shape) if size != other[name].shape[axis]]
        for name, tensor in own.items()
    }


def _cleared(tensors: Tensors, outputs: list[int], axes: Mapping[str, list[int]]) -> Tensors:
    """Zero everything that belongs to some outputs. Raises LearnerError if that is impossible."""
    names = tuple(name.removeprefix("net/") for name in tensors if name.startswith("net/"))
    for name in (name for name in tensors if name.startswith("method/")):
        if not axes[name] and tensors[name].ndim > 1 and not name.endswith(names):
            raise LearnerError(
                f"the method remembers {name.removeprefix('method/')!r}, from which no class can "
                f"be removed. Train a new net as well: retrain=True (--retrain)."
            )
    cleared = dict(tensors)
    for name, own in axes.items():
        if not name.startswith("metrics/"):
            cleared[name] = tensors[name].clone()
            for axis in own:
                cleared[name].index_fill_(axis, torch.tensor(outputs), 0)
    return cleared
