"""`remask learn`: teach a learner new classes; the first visit creates it."""

import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from rich.progress import TaskID, TimeElapsedColumn

from remask.cli import learner as o
from remask.cli.command import Group, Printing, flag, opt, option_for, with_groups
from remask.cli.completion import ENCODER, METHOD, NET
from remask.console import PlainConsole, errors
from remask.errors import SettingsError
from remask.experiments.display import DETAIL, progress_bar
from remask.learner.settings import (
    LearnerError,
    LearnerSettings,
    NoEncoderWarning,
    VisitRejectedError,
    texts_need_an_encoder,
)
from remask.machine import keep_freed_memory
from remask.setting_types import describe_errors

if TYPE_CHECKING:
    from remask import Learner
    from remask.data.texts import TextFile
    from remask.learner import Progress as VisitProgress

REJECTED = 3
"""The exit code of a visit that was not committed."""
_SECONDS_BETWEEN_LINES = 10.0
_COMPLETIONS = {"encoder": ENCODER, "net": NET, "method": METHOD}
_NEW = "Settings of a new learner; fixed from its first visit on"
SETTINGS = Group(
    option_for(name, field, _NEW, completions=_COMPLETIONS)
    for name, field in LearnerSettings.model_fields.items()
)


@with_groups
def learn(
    *,
    folder: o.Folder,
    data: Annotated[
        Path, opt("FOLDER", "The images, CLASS/NAME.jpg; or FILE.csv, FILE.jsonl of texts.")
    ],
    name: Annotated[str, opt("NAME", "The name of this visit.")],
    settings: Annotated[dict[str, Any], SETTINGS],
    text: o.TextColumn = None,
    label: o.LabelColumn = None,
    skip_unreadable: o.SkipUnreadable = False,
    discard: Annotated[bool, flag("--discard", "Discard another, unfinished visit.")] = False,
    max_drop: Annotated[
        float, opt("POINTS", "Reject a visit that costs earlier classes more.", min=0, max=100)
    ] = 25.0,
    force: Annotated[bool, flag("--force", "Commit the visit even if it is rejected.")] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Print what would be learnt, and how long.")
    ] = False,
    device: o.Device = "cpu",
    printer: Printing,
) -> None:
    """Teach a learner the classes of images or texts.

    The first visit creates the learner. A memory keeps samples of earlier classes, which may be in
    later visits again. A visit that was stopped continues with the same command; until it is
    finished, the learner predicts as before.

    A visit that ends at chance level on held-out samples, or costs earlier classes too much, is not
    committed, and the exit code is 3.

    Example: `remask learn animals --data photos/week-12 --name week-12`
    """
    keep_freed_memory()
    given = o.labelled_data(data, text, label)
    if dry_run:
        with tempfile.TemporaryDirectory() as temporary:
            place = folder if _exists(folder) else Path(temporary) / "learner"
            learner = _opened(place, given, settings, device)
            found = learner.estimate(given, skip_unreadable=skip_unreadable)
        printer.result(found, str(found))
        return
    learner = _opened(folder, given, settings, device)
    with _stopping():
        try:
            with (
                o.reported_skips(learner, printer),
                visit_progress(name, printer.console) as show,
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
            errors.print(str(error))
            raise typer.Exit(REJECTED) from None
        except KeyboardInterrupt as interrupt:
            if learner.unfinished is None:
                errors.print(f"stopped before anything was learnt; {folder} is unchanged.")
            else:
                errors.print(
                    f"stopped; {learner.unfinished} is saved up to here, and {folder} predicts as "
                    f"before. Run the same command to continue."
                )
            number = interrupt.args[0] if interrupt.args else signal.SIGINT
            raise typer.Exit(128 + number) from None
    lines = [str(visit)]
    if not visit.repeated:
        lines.append(f"  {visit.choice}")
        if visit.calibration is not None:
            lines.append(
                f"  expected calibration error {visit.calibration.ece_before:.1f} % -> "
                f"{visit.calibration.ece_after:.1f} %, on {visit.calibration.samples} held-out "
                f"samples"
            )
    printer.result({**visit.model_dump(mode="json"), "repeated": visit.repeated}, *lines)


def _exists(folder: Path) -> bool:
    return (folder.expanduser() / "learner.json").exists()


def _opened(folder: Path, data: "Path | TextFile", given: dict[str, Any], device: str) -> "Learner":
    from remask import Learner  # torch: not before it is needed
    from remask.encoders.catalogue import default_encoder

    # Checked before a folder is created for a learner that would stay empty.
    if isinstance(data, Path) and not data.is_dir():
        columns = " For texts, name the columns: --text COLUMN --label COLUMN" * data.is_file()
        raise LearnerError(
            f"{data} is not a folder: expected a folder per class, CLASS/NAME.png.{columns}"
        )
    if _exists(folder):
        own = {key: given[key] for key in ("encoder", "net", "method") if key in given}
        learner = Learner.open(folder, **own, device=device)
        _check_same(folder, learner.settings, given)
        return learner
    named = given.get("encoder", "auto")
    lacks_encoder = named == "none" or (named == "auto" and default_encoder("text") is None)
    if lacks_encoder and not isinstance(data, Path):
        raise texts_need_an_encoder()
    return Learner.create(folder, **given, device=device)


def _check_same(folder: Path, current: LearnerSettings, given: dict[str, Any]) -> None:
    """Refuse options that would change the settings of a learner."""
    try:
        wanted = current.model_validate({**current.model_dump(), **given})
    except ValidationError as error:
        raise SettingsError(describe_errors(error)) from None
    for key in given:
        now, then = getattr(wanted, key), getattr(current, key)
        if now != then:
            raise SettingsError(
                f"{folder} was created with {key.replace('_', ' ')} {then}, which cannot be "
                f"changed to {now}: leave the option out, or create another learner."
            )


@contextmanager
def _notes(printer: Printing) -> Iterator[None]:
    """Print the warnings of a learner as notes."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        printer.note(f"note: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", NoEncoderWarning)
        warnings.showwarning = show
        yield


@contextmanager
def visit_progress(name: str, console: PlainConsole) -> Iterator[Callable[["VisitProgress"], None]]:
    """Show the progress of a visit: a bar on a terminal, otherwise a line every ten seconds."""
    phases: dict[str, TaskID] = {}
    printed = time.monotonic()
    with progress_bar(console, DETAIL, TimeElapsedColumn()) as bar:
        reading = bar.add_task("reading the samples", total=None, detail="")

        def show(progress: "VisitProgress") -> None:
            nonlocal printed
            phase = progress.phase
            if phase not in phases:  # each phase has its own speed
                for task in (reading, *phases.values()):
                    bar.update(task, visible=False)
                phases[phase] = bar.add_task(
                    name, total=progress.steps, completed=progress.step, detail=""
                )
            bar.update(phases[phase], completed=progress.step, detail=_detail(progress))
            if not console.is_terminal and time.monotonic() - printed >= _SECONDS_BETWEEN_LINES:
                printed = time.monotonic()
                seconds = bar.tasks[-1].time_remaining
                most = "at most" if phase == "training" else "about"
                left = "" if seconds is None else f", {most} {_duration(seconds)} left"
                console.print(f"{name}: {_detail(progress)}{left}")

        yield show


def _detail(progress: "VisitProgress") -> str:
    if progress.phase == "encoding":
        return f"encoding, {progress.step:,} of {progress.steps:,} samples"
    return f"training, epoch {progress.epoch}, step {progress.step:,} of at most {progress.steps:,}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def _stopping() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN  # as under nohup
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
