"""`remask export`: a learner's model for other programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from remask.cli import options as o
from remask.cli.generated import with_groups
from remask.cli.printer import Printing
from remask.durable import check_output


class Format(StrEnum):
    """What a learner can be exported to."""

    ONNX = "onnx"
    TORCH_EXPORT = "torch-export"
    SAFETENSORS = "safetensors"


@with_groups
def export(
    folder: o.LearnerFolder,
    *,
    to: Annotated[Format, typer.Option(help="The kind of file.")],
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="The file to write. Default: named after the learner, in the current folder.",
        ),
    ] = None,
    encoder: o.OwnEncoder = None,
    net: o.OwnNet = None,
    method: o.OwnMethod = None,
    printer: Printing,
) -> None:
    """Write a learner's model as a file for other programs, and a JSON beside it.

    Preprocessing is part of an ONNX or torch.export file, which takes images as they are read and
    gives probabilities. The file is read back and must predict the same before it takes its place.

    Example: `remask export animals --to onnx`
    """
    from remask import Learner  # torch: not before it is needed
    from remask.learner.export import SUFFIXES

    learner = Learner.open(folder, encoder=encoder, net=net, method=method)
    target = target or Path(folder.resolve().name + SUFFIXES[to.value])
    check_output(target)
    exported = learner.export(target, to=to.value)
    printer.result({"file": exported}, str(exported))
