"""`remask learn`: teach a learner new classes; the first visit creates it."""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from rich.progress import TimeElapsedColumn

from remask.cli import learner as o
from remask.cli.app import Printing
from remask.cli.options import ENCODER, METHOD, NET, Group, flag, number, opt, option_for
from remask.console import PlainConsole, errors
from remask.errors import SettingsError, describe_errors
from remask.experiments.display import DETAIL, progress_bar
from remask.learner.settings import (
    LearnerError,
    LearnerSettings,
    VisitRejectedError,
    texts_need_an_encoder,
)
from remask.machine import keep_freed_memory, write_duration

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


def learn(
    *,
    folder: o.Folder,
    data: Annotated[
        Path, opt("FOLDER", "The images, CLASS/NAME.jpg; or FILE.csv, FILE.jsonl of texts.")
    ],
    name: Annotated[str, opt("NAME", "The name of this visit.")],
    settings: Annotated[dict[str, Any], Group((*SETTINGS.options, o.DEVICE))],
    text: o.TextColumn = None,
    label: o.LabelColumn = None,
    skip_unreadable: o.SkipUnreadable = False,
    discard: Annotated[bool, flag("--discard", "Discard another, unfinished visit.")] = False,
    max_drop: Annotated[
        float,
        opt(
            "POINTS",
            "Reject a visit that costs earlier classes more.",
            parser=number(float, 0, 100),
        ),
    ] = 25.0,
    force: Annotated[bool, flag("--force", "Commit the visit even if it is rejected.")] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Print what would be learnt, and how long.")
    ] = False,
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
            learner = _opened(place, given, settings)
            found = learner.estimate(given, skip_unreadable=skip_unreadable)
        printer.result(found, str(found))
        return
    learner = _opened(folder, given, settings)
    try:
        with o.reporting(learner, printer), visit_progress(name, printer.console) as show:
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
        state = f"before anything was learnt; {folder} is unchanged."
        if learner.unfinished is not None:
            state = (
                f"{learner.unfinished}, which is saved up to here; {folder} predicts as before. "
                f"Run the same command to continue."
            )
        errors.print(f"stopped {state}")
        raise typer.Exit(128 + (interrupt.args or (signal.SIGINT,))[0]) from None
    lines = [] if visit.repeated else [visit.choice, visit.calibration]
    shown = [str(visit), *(f"  {line}" for line in lines if line is not None)]
    printer.result({**visit.model_dump(mode="json"), "repeated": visit.repeated}, *shown)


def _exists(folder: Path) -> bool:
    return (folder.expanduser() / "learner.json").exists()


def _opened(folder: Path, data: "Path | TextFile", given: dict[str, Any]) -> "Learner":
    from remask import Learner  # torch: not before it is needed
    from remask.encoders.catalogue import default_encoder

    # Checked before a folder is created for a learner that would stay empty.
    if isinstance(data, Path) and not data.is_dir():
        columns = ". For texts, name the columns: --text COLUMN --label COLUMN" * data.is_file()
        found = "is not a folder" if data.exists() else "does not exist"
        raise LearnerError(f"{data} {found}: expected a folder per class, CLASS/NAME.png{columns}")
    if _exists(folder):
        opening = ("encoder", "net", "method", "device")
        learner = Learner.open(folder, **{key: given[key] for key in opening if key in given})
        wanted = {key: value for key, value in given.items() if key != "device"}
        _check_same(folder, learner.settings, wanted)
        return learner
    named = given.get("encoder", "auto")
    lacks_encoder = named == "none" or (named == "auto" and default_encoder("text") is None)
    if lacks_encoder and not isinstance(data, Path):
        raise texts_need_an_encoder()
    return Learner.create(folder, **given)


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
def visit_progress(name: str, console: PlainConsole) -> Iterator[Callable[["VisitProgress"], None]]:
    """Show the progress of a visit: a bar on a terminal, otherwise a line every ten seconds."""
    phase, printed = "", time.monotonic()
    with progress_bar(console, DETAIL, TimeElapsedColumn()) as bar:
        task = bar.add_task("reading the samples", total=None, detail="")

        def show(progress: "VisitProgress") -> None:
            nonlocal phase, printed
            if progress.phase != phase:  # each phase has its own speed
                phase = progress.phase
                bar.reset(task, total=progress.steps, completed=progress.step, description=name)
            bar.update(task, completed=progress.step, detail=_detail(progress))
            if not console.is_terminal and time.monotonic() - printed >= _SECONDS_BETWEEN_LINES:
                printed = time.monotonic()
                seconds = bar.tasks[task].time_remaining
                most = "at most" if phase == "training" else "about"
                left = "" if seconds is None else f", {most} {write_duration(seconds)} left"
                console.print(f"{name}: {_detail(progress)}{left}")

        yield show


def _detail(progress: "VisitProgress") -> str:
    if progress.phase == "encoding":
        return f"encoding, {progress.step:,} of {progress.steps:,} samples"
    return f"training, epoch {progress.epoch}, step {progress.step:,} of at most {progress.steps:,}"
