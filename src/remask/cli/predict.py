"""`remask predict` and `remask evaluate`: what a learner says of images, and how right it is."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.console import output


def predict(
    folder: o.LearnerFolder,
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGE", help="Images, or one folder of them.")
    ],
    *,
    top: Annotated[
        int, typer.Option(metavar="N", min=1, help="Name the N most probable classes.")
    ] = 1,
    abstain: Annotated[
        bool,
        typer.Option("--abstain", help="Name no class where the learner is not sure enough."),
    ] = False,
    as_json: o.AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line per image.")] = False,
    net: o.OwnNet = None,
    method: o.OwnMethod = None,
    device: o.Device = "cpu",
) -> None:
    """Name the classes of images, with probabilities.

    Example: `remask predict animals photos/unknown --top 3`
    """
    from remask import Learner  # torch: not before it is needed

    if as_json and as_csv:
        raise typer.BadParameter("say --json or --csv, not both")
    learner = Learner.open(folder, net=net, method=method, device=device, read_only=True)
    data = images[0] if len(images) == 1 else images
    predictions = learner.predict(data, top=top, abstain=abstain)
    if as_json or as_csv:
        sys.stdout.write(predictions.to_json() if as_json else predictions.to_csv())
    else:
        output.print(str(predictions), highlight=False, soft_wrap=True)


def evaluate(
    folder: o.LearnerFolder,
    *,
    data: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Images whose class is known: CLASS/NAME.png.")
    ],
    as_json: o.AsJson = False,
    net: o.OwnNet = None,
    method: o.OwnMethod = None,
    device: o.Device = "cpu",
) -> None:
    """Measure how right a learner is about images whose classes are known.

    Example: `remask evaluate animals --data photos/test`
    """
    from remask import Learner  # torch: not before it is needed

    learner = Learner.open(folder, net=net, method=method, device=device, read_only=True)
    found = learner.evaluate(data)
    if as_json:
        sys.stdout.write(json.dumps(dataclasses.asdict(found), indent=1) + "\n")
    else:
        output.print(str(found), highlight=False, soft_wrap=True)
