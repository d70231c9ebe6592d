"""`remask predict` and `remask evaluate`: name classes, and measure how often that is right."""

from pathlib import Path
from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.console import write_out
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.cli.user_data import (
    LabelColumn,
    SkipUnreadable,
    TextColumn,
    labelled_data,
    skipped_reported,
)


@with_groups
def predict(
    folder: o.LearnerFolder,
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGE", help="Images, or one folder of them; or FILE.csv, FILE.jsonl of texts."
        ),
    ],
    *,
    top: Annotated[
        int, typer.Option(metavar="N", min=1, help="Name the N most probable classes.")
    ] = 1,
    abstain: o.Abstain = None,
    unknown: o.Unknown = None,
    text: TextColumn = None,
    skip_unreadable: SkipUnreadable = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line per image.")] = False,
    encoder: o.OwnEncoder = None,
    net: o.OwnNet = None,
    method: o.OwnMethod = None,
    device: o.Device = "cpu",
    printer: Printing,
) -> None:
    """Name the classes of images or texts, with probabilities.

    `--abstain 0.9` names no class below the confidence at which 90 % of the held-out samples are
    right, and prints how many samples that covers. `--unknown 0.05` marks what resembles no known
    class; about 5 % of samples of known classes are marked as well.

    Example: `remask predict animals photos/unknown --top 3`
    """
    from remask import Learner  # torch: not before it is needed
    from remask.user_data import Data, TextFile

    if printer.json and as_csv:
        raise typer.BadParameter("give --json or --csv, not both")
    learner = Learner.open(folder, encoder=encoder, net=net, method=method, device=device)
    data: Data = images[0] if len(images) == 1 else images
    if text is not None:
        if len(images) > 1:
            raise typer.BadParameter("give one FILE.csv or FILE.jsonl with --text")
        data = TextFile(images[0], text)
    with skipped_reported(learner, printer):
        predictions = learner.predict(
            data, top=top, abstain=abstain, unknown=unknown, skip_unreadable=skip_unreadable
        )
    for note in predictions.notes:
        printer.note(note)
    if printer.json or as_csv:
        write_out(predictions.to_json() if printer.json else predictions.to_csv())
    else:
        printer.result(None, str(predictions))


@with_groups
def evaluate(
    folder: o.LearnerFolder,
    *,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Images whose class is known, CLASS/NAME.jpg; or FILE.csv, FILE.jsonl of texts.",
        ),
    ],
    text: TextColumn = None,
    label: LabelColumn = None,
    abstain: o.Abstain = None,
    unknown: o.Unknown = None,
    skip_unreadable: SkipUnreadable = False,
    encoder: o.OwnEncoder = None,
    net: o.OwnNet = None,
    method: o.OwnMethod = None,
    device: o.Device = "cpu",
    printer: Printing,
) -> None:
    """Measure accuracy and calibration on images or texts whose classes are known.

    Prints the accuracy of each class and the confusion matrix, or the most frequent confusions if
    there are more than 20 classes. Classes that the learner does not know are counted separately.

    Example: `remask evaluate animals --data photos/test`
    """
    from remask import Learner  # torch: not before it is needed

    learner = Learner.open(folder, encoder=encoder, net=net, method=method, device=device)
    given = labelled_data(data, text, label)
    with skipped_reported(learner, printer):
        found = learner.evaluate(
            given, abstain=abstain, unknown=unknown, skip_unreadable=skip_unreadable
        )
    printer.result(found, str(found))
