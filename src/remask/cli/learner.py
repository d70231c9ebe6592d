"""`remask predict`, `evaluate`, `history`, `show`, `undo`, `rename`, `forget` and `export`."""

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from remask.cli.app import Printer, Printing, confirm, write_out
from remask.cli.options import VALUES, Group, arg, flag, number, opt, option
from remask.console import errors
from remask.outputs import check_output

if TYPE_CHECKING:
    from remask import Learner
    from remask.data.texts import TextFile

_OWN_CODE = "Your own code, if the learner has any"
_TEXTS = "Texts instead of images"


def _open(folder: Path, **own: Any) -> "Learner":
    from remask import Learner  # torch: not before it is needed

    return Learner.open(folder, **own)


Folder = Annotated[Path, arg("DIR", "The learner's folder.")]
OWN = Group(
    option(name, str, opt("NAME", f"Its {name}: `module:{kind}`.", panel=_OWN_CODE))
    for name, kind in (("encoder", "function"), ("net", "function"), ("method", "Class"))
)
_FOLDER = inspect.Parameter("folder", inspect.Parameter.KEYWORD_ONLY, annotation=Folder)
DEVICE = option(
    "device",
    str,
    opt("NAME", "The torch device, such as cuda.", autocompletion=VALUES["device"]),
)
Opened = Annotated["Learner", Group((_FOLDER, *OWN.options, DEVICE), make=_open)]
"""The options of a command that opens a learner."""
Discard = Annotated[bool, flag("--discard", "Discard an unfinished visit.")]
Abstain = Annotated[
    float | None, opt("ACCURACY", "Name no class where accuracy would be lower, such as 0.9.")
]
Unknown = Annotated[
    float | None, opt("RATE", "Mark unknown inputs, at this rate of false alarms, such as 0.05.")
]
SkipUnreadable = Annotated[
    bool, flag("--skip-unreadable", "Skip files that cannot be read, and name them.")
]
TextColumn = Annotated[
    str | None, opt("COLUMN", "The column of the texts.", "--text", panel=_TEXTS)
]
LabelColumn = Annotated[
    str | None, opt("COLUMN", "The column of their classes.", "--label", panel=_TEXTS)
]


def predict(
    *,
    learner: Opened,
    images: Annotated[
        list[Path],
        arg("IMAGE", "Images, or one folder of them; or FILE.csv, FILE.jsonl of texts."),
    ],
    top: Annotated[int, opt("N", "Name the N most probable classes.", parser=number(int, 1))] = 1,
    abstain: Abstain = None,
    unknown: Unknown = None,
    text: TextColumn = None,
    skip_unreadable: SkipUnreadable = False,
    as_csv: Annotated[bool, flag("--csv", "Print CSV, a line per image.")] = False,
    printer: Printing,
) -> None:
    """Name the classes of images or texts.

    `--abstain 0.9` names no class below the confidence at which 90 % of the held-out samples are
    right, and prints how many samples that covers. `--unknown 0.05` marks what resembles no known
    class; about 5 % of samples of known classes are marked as well.

    Example: `remask predict animals photos/unknown --top 3`
    """
    from remask.data.texts import TextFile  # torch: not before it is needed
    from remask.data.user_data import Data  # torch: not before it is needed

    if printer.json and as_csv:
        raise typer.BadParameter("give --json or --csv, not both")
    data: Data = images[0] if len(images) == 1 else images
    if text is not None:
        if len(images) > 1:
            raise typer.BadParameter("give one FILE.csv or FILE.jsonl with --text")
        data = TextFile(images[0], text)
    with reporting(learner, printer):
        predictions = learner.predict(
            data, top=top, abstain=abstain, unknown=unknown, skip_unreadable=skip_unreadable
        )
    for note in predictions.notes:
        printer.note(note)
    if printer.json or as_csv:
        write_out(predictions.to_json() if printer.json else predictions.to_csv())
    else:
        printer.show(str(predictions))


def evaluate(
    *,
    learner: Opened,
    data: Annotated[
        Path,
        opt("FOLDER", "The images, CLASS/NAME.jpg; or FILE.csv, FILE.jsonl of texts."),
    ],
    text: TextColumn = None,
    label: LabelColumn = None,
    abstain: Abstain = None,
    unknown: Unknown = None,
    skip_unreadable: SkipUnreadable = False,
    printer: Printing,
) -> None:
    """Measure accuracy on images or texts of known classes.

    Prints accuracy per class, calibration, and the confusion matrix, or the most frequent
    confusions of more than 20 classes. Classes that the learner has not learnt are counted
    separately.

    Example: `remask evaluate animals --data photos/test`
    """
    given = labelled_data(data, text, label)
    with reporting(learner, printer):
        found = learner.evaluate(
            given, abstain=abstain, unknown=unknown, skip_unreadable=skip_unreadable
        )
    printer.result(found, str(found))


def history(
    folder: Folder,
    *,
    page: Annotated[
        Path | None, opt("FILE", "Write a page, .html, or a figure, .png or .svg.")
    ] = None,
    own: Annotated[dict[str, Any], OWN],
    printer: Printing,
) -> None:
    """Show the visits of a learner and its accuracy per class.

    A page also has the memory, the calibration and the confusion matrix of held-out samples.

    Example: `remask history animals --page animals.html`
    """
    from remask.experiments.pages import learnt_visits, write_learner_history  # torch
    from remask.reports.history import classes_table, visits_table

    if page is not None:
        check_output(page)
    visits = learnt_visits(folder)
    if page is not None:
        if missing := write_learner_history(folder, page, **own):
            printer.note(f"the page has no confusion matrix: {missing}")
        printer.note(f"{len(visits)} visits in {page}")
    if printer.json or not visits:
        printer.result(visits, f"{folder} has not learnt anything yet.")
    elif page is None:
        heading = "Accuracy on held-out samples after each visit (%):"
        printer.show(visits_table(visits), heading, classes_table(visits))


def show(folder: Folder, *, printer: Printing) -> None:
    """Show the classes, memory, settings and size of a learner.

    Example: `remask show animals`
    """
    from remask.learner.summary import summarise  # torch: not before it is needed

    found = summarise(folder)
    printer.result(found, str(found))


def undo(*, learner: Opened, discard: Discard = False, printer: Printing) -> None:
    """Undo the last visit of a learner.

    Repeat it to go back further, by up to `--keep-generations` visits. A class that was forgotten
    does not come back.

    Example: `remask undo animals`
    """
    undone = learner.undo(discard=discard)
    printer.result(undone, str(undone))


def rename(
    *,
    learner: Opened,
    old: Annotated[str, arg("OLD", "The class.")],
    new: Annotated[str, arg("NEW", "Its new name.")],
    merge: Annotated[bool, flag("--merge", "Merge OLD into NEW, which exists already.")] = False,
    discard: Discard = False,
    printer: Printing,
) -> None:
    """Rename a class of a learner, or merge two classes.

    The history and the generations that `remask undo` goes back to are renamed as well.

    Example: `remask rename animals kat cat`
    """
    learner.rename(old, new, merge=merge, discard=discard)
    done = f"merged {old} with {new}" if merge else f"renamed {old} to {new}"
    printer.result({"old": old, "new": new, "merged": merge}, done)


def forget(
    *,
    learner: Opened,
    name: Annotated[str, arg("CLASS", "The class to forget.")],
    retrain: Annotated[
        bool, flag("--retrain", "Train a new net from the memory of the other classes.")
    ] = False,
    yes: Annotated[bool, flag("--yes", "Forget it without asking.")] = False,
    printer: Printing,
) -> None:
    """Remove a class from every file of a learner.

    Its samples and everything stored with them are removed as well.

    Example: `remask forget animals cat`
    """
    if name in learner.classes and not yes:
        confirm(f"Forget {name} permanently?", "forget", "forgotten")
    forgotten = learner.forget(name, retrain=retrain)
    printer.result(forgotten, str(forgotten))


def export(
    *,
    learner: Opened,
    to: Annotated[
        Literal["onnx", "torch-export", "safetensors"], typer.Option(help="The kind of file.")
    ],
    target: Annotated[
        Path | None, opt("FILE", "Default: the learner's name, in the current folder.", "--output")
    ] = None,
    printer: Printing,
) -> None:
    """Write the model of a learner for other programs.

    A JSON file beside it describes it. An ONNX or torch.export file includes the preprocessing: it
    takes images as they are read and returns probabilities. The file is read back and must predict
    the same before it is kept.

    Example: `remask export animals --to onnx`
    """
    from remask.learner.export import SUFFIXES  # torch: not before it is needed

    target = target or Path(learner.folder.resolve().name + SUFFIXES[to])
    check_output(target)
    exported = learner.export(target, to=to)
    printer.result({"file": exported}, str(exported))


def labelled_data(path: Path, text: str | None, label: str | None) -> "Path | TextFile":
    """Return the data that the options name: a folder, or columns of a file."""
    if text is None and label is None:
        return path
    if text is None or label is None:
        raise typer.BadParameter("--text and --label go together: name both columns")
    from remask.data.texts import TextFile  # torch: not before it is needed

    return TextFile(path, text, label)


@contextmanager
def reporting(learner: "Learner", printer: Printer) -> Iterator[None]:
    """Print warnings of a learner as notes, and which files were skipped or ignored."""
    from remask.data.readers import UnreadableImageWarning  # torch: not before it is needed
    from remask.learner.settings import NoEncoderWarning

    def show(message: Warning | str, *_: object, **__: object) -> None:
        printer.note(f"note: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", NoEncoderWarning)
        warnings.simplefilter("ignore", UnreadableImageWarning)  # printed below instead
        warnings.showwarning = show
        yield
    if learner.skipped is not None:
        if line := learner.skipped.unreadable_line:
            errors.print(line)
        if line := learner.skipped.ignored_line:
            printer.note(line)
