"""`remask learn`: teach a learner new classes, and make it at its first visit."""

import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from remask.cli import options as o
from remask.cli.completing import ENCODER, METHOD, NET
from remask.cli.console import errors
from remask.cli.generated import Group, option, with_groups
from remask.cli.printer import Printing
from remask.cli.user_data import (
    LabelColumn,
    SkipUnreadable,
    TextColumn,
    labelled_data,
    skipped_reported,
)
from remask.cli.visits import stopping, visit_bar
from remask.errors import SettingsError
from remask.machine import keep_freed_memory

if TYPE_CHECKING:
    from remask import Learner
    from remask.learner.settings import LearnerSettings
    from remask.user_data import TextFile

_MOST_DIGITS = 12
REJECTED = 3
"""The exit code of a visit that was not committed."""
_NEW = "Settings of a new learner; fixed from its first visit on"
# Not made from LearnerSettings, because importing it takes torch's seconds; a test compares them.
_SETTINGS: dict[str, tuple[type, str | None, str]] = {
    "encoder": (
        str,
        "NAME",
        "Pretrained network that computes features: see `remask encoders`, your own, "
        "`module:function`, or none. Default: the one installed for photographs or texts.",
    ),
    "net": (
        str,
        "NAME",
        "What is trained without an encoder: conv, mlp, linear, resnet18, or your own, "
        "`module:function`. Default: conv for images, linear for features.",
    ),
    "memory": (str, "N", "Samples to keep, or a size such as `500MB`; 0: none. Default: 2000."),
    "method": (
        str,
        "NAME",
        "ridge, slda, ncm (no training), one of `remask methods`, or your own, `module:Class`. "
        "Default: auto, the best on held-out samples.",
    ),
    "mask": (str, "M", "The masking value: auto, none, -inf, or a number. Default: auto."),
    "lr": (float, "X", "Learning rate. Default: chosen by held-out samples."),
    "epochs": (int, "N", "The most epochs of a visit, which ends when accuracy stops rising."),
    "batch": (int, "N", "New samples per step. Default: as published."),
    "replay_batch": (int, "N", "Samples from the memory per step. Default: as published."),
    "optimizer": (str, "NAME", "sgd or adamw. Default: sgd."),
    "augment": (
        bool,
        None,
        "Crop and mirror training images at random. Default: with the net conv.",
    ),
    "image_size": (
        str,
        "SIZE",
        "Resize images to this: `64`, or `48x64` for height and width. Default: the encoder's, "
        "or without one the size of the first image, at most 64.",
    ),
    "normalise": (str, "HOW", "auto: each channel by the first visit's samples; or none."),
    "seed": (int, "N", "What all random numbers are drawn from. Default: 0."),
    "statistics_bytes": (
        int,
        "N",
        "The most bytes of statistics of each class, which make forgetting exact. Default: 2 GB.",
    ),
    "keep_generations": (int, "N", "Visits that `remask undo` can take back. Default: 3."),
}
SETTINGS = Group(
    option(
        name,
        text,
        metavar,
        _NEW,
        kind,
        *(["--augment"] if kind is bool else []),
        autocompletion={"encoder": ENCODER, "net": NET, "method": METHOD}.get(name),
    )
    for name, (kind, metavar, text) in _SETTINGS.items()
)


@with_groups
def learn(
    *,
    folder: o.LearnerFolder,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="The images, CLASS/NAME.jpg; or FILE.csv, FILE.jsonl of texts."
        ),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="What to call this visit.")],
    settings: Annotated[dict[str, Any], SETTINGS],
    text: TextColumn = None,
    label: LabelColumn = None,
    skip_unreadable: SkipUnreadable = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Give up another visit that is not finished.")
    ] = False,
    max_drop: Annotated[
        float,
        typer.Option(
            metavar="POINTS",
            min=0,
            max=100,
            help="Do not commit a visit that costs earlier classes more than this.",
        ),
    ] = 25.0,
    force: Annotated[
        bool, typer.Option("--force", help="Commit the visit however little it has learnt.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Learn nothing; print what would be learnt, and how long."),
    ] = False,
    device: o.Device = "cpu",
    printer: Printing,
) -> None:
    """Teach a learner the classes of images or texts; the first visit creates the learner.

    Earlier classes are kept by a memory of their samples, and may come back in later visits. A
    visit that was stopped goes on where it was with the same command; until it is finished, the
    learner is as it was before.

    A visit that ends at chance level on held-out samples, or costs earlier classes too much, is not
    committed, and the exit code is 3.

    Example: `remask learn animals --data photos/week-12 --name week-12`
    """
    from remask.learner import VisitRejectedError  # torch: not before it is needed

    keep_freed_memory()
    how = {"device": device}
    given = labelled_data(data, text, label)
    if dry_run:
        with _for_estimate(folder, given, _read(settings), how) as learner:
            found = learner.estimate(given, skip_unreadable=skip_unreadable)
        printer.result(found, str(found))
        return
    learner = _opened(folder, given, _read(settings), how)
    with stopping() as stopped:
        try:
            with (
                skipped_reported(learner, printer),
                visit_bar(name, printer.console) as show,
                _notes(printer),
            ):
                visit = learner.learn(
                    given,
                    name=name,
                    discard=discard,
                    skip_unreadable=skip_unreadable,
                    max_drop=max_drop,
                    force=force,
                    on_progress=show,
                )
        except VisitRejectedError as error:
            errors.print(str(error), highlight=False, soft_wrap=True)
            raise typer.Exit(REJECTED) from None
        except KeyboardInterrupt:
            _say_what_is_left(folder, learner.unfinished)
            raise typer.Exit(128 + (stopped() or signal.SIGINT)) from None
    lines = [str(visit)]
    if not visit.repeated:
        lines.append(f"  {visit.choice}")
    if visit.calibration is not None and not visit.repeated:
        lines.append(
            f"  expected calibration error {visit.calibration.ece_before:.1f} % -> "
            f"{visit.calibration.ece_after:.1f} %, on {visit.calibration.samples} held-out samples"
        )
    printer.result({**visit.model_dump(mode="json"), "repeated": visit.repeated}, *lines)


def _opened(
    folder: Path, data: "Path | TextFile", given: dict[str, Any], how: dict[str, Any]
) -> "Learner":
    from remask import Learner  # torch: not before it is needed
    from remask.encoders import default_encoder
    from remask.learner.errors import LearnerError, texts_need_an_encoder

    # Checked before a folder is made for a learner that would stay empty.
    is_new = not (folder.expanduser() / "learner.json").exists()
    if isinstance(data, Path) and data.is_file():
        raise LearnerError(
            f"{data} is not a folder: expected a folder per class, CLASS/NAME.png. For texts, name "
            f"the columns: --text COLUMN --label COLUMN"
        )
    if isinstance(data, Path) and not data.is_dir():
        raise LearnerError(f"{data} is not a folder: expected a folder per class, CLASS/NAME.png")
    named = given.get("encoder", "auto")
    lacks = named == "none" or (named == "auto" and default_encoder("text") is None)
    if is_new and lacks and not isinstance(data, Path):
        raise texts_need_an_encoder()
    if is_new:
        return Learner.create(folder, **given, **how)
    own = {key: given[key] for key in ("encoder", "net", "method") if key in given}
    learner = Learner.open(folder, **own, **how)
    _check_same(folder, learner.settings, given)
    return learner


@contextmanager
def _for_estimate(
    folder: Path, data: "Path | TextFile", given: dict[str, Any], how: dict[str, Any]
) -> Iterator["Learner"]:
    """The learner, or one with these settings in a temporary folder if there is none yet."""
    if (folder.expanduser() / "learner.json").exists():
        yield _opened(folder, data, given, how)
        return
    with tempfile.TemporaryDirectory() as place:
        yield _opened(Path(place) / "learner", data, given, how)


@contextmanager
def _notes(printer: Printing) -> Iterator[None]:
    """Print what a learner warns of as notes."""
    from remask.learner import NoEncoderWarning  # torch: not before it is needed

    def show(message: Warning | str, *_: object, **__: object) -> None:
        printer.note(f"note: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", NoEncoderWarning)
        warnings.showwarning = show
        yield


def _check_same(folder: Path, there: "LearnerSettings", given: dict[str, Any]) -> None:
    """Refuse options that would change what a learner was created with."""
    from remask.setting_types import describe_errors  # torch: not before it is needed

    try:
        wanted = there.model_validate({**there.model_dump(), **given})
    except ValidationError as error:
        raise SettingsError(describe_errors(error)) from None
    for key in given:
        now, then = getattr(wanted, key), getattr(there, key)
        if now != then:
            raise SettingsError(
                f"{folder} was created with {key.replace('_', ' ')} {then}, which cannot be "
                f"changed to {now}: leave the option out, or create another learner."
            )


def _read(settings: dict[str, Any]) -> dict[str, Any]:
    """What the options mean, where it is more than their text."""
    read = dict(settings)
    if (memory := settings.get("memory", "")).isdecimal():
        if len(memory) > _MOST_DIGITS:
            raise SettingsError(f"--memory {memory[:20]}...: a learner keeps fewer samples")
        read["memory"] = int(memory)
    if size := settings.get("image_size"):
        height, _, width = size.lower().partition("x")
        sides = height, width or height
        if not all(side.isdecimal() and len(side) <= _MOST_DIGITS for side in sides):
            raise SettingsError(
                f"--image-size {size:.40}: give 64, or 48x64 for a height of 48 and a width of 64"
            )
        read["image_size"] = (int(height), int(width or height))
    return read


def _say_what_is_left(folder: Path, unfinished: str | None) -> None:
    if unfinished is None:
        said = f"stopped before anything was learnt; {folder} is as it was."
    else:
        said = (
            f"stopped; what was learnt of {unfinished} so far is saved, and {folder} predicts as "
            f"before. The same command goes on with it."
        )
    errors.print(said, highlight=False, soft_wrap=True)
