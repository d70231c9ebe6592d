"""The options of the commands: what each is called, takes, and means.

A command's signature names them in one line each; everything that `--help` says stands here.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from remask.results import FILTERS, Store, store_path

_WHAT = "What to run"
_SETTINGS = "Settings; the paper's unless given"
_HOW = "How to run it"
_ONLY = "Only these results"


def _option(panel: str | None, takes: str | None, meaning: str, *names: str, **limits: Any) -> Any:
    return typer.Option(*names, help=meaning, metavar=takes, rich_help_panel=panel, **limits)


def _what(takes: str, meaning: str) -> Any:
    return _option(_WHAT, takes, meaning)


def _setting(takes: str | None, meaning: str, *names: str) -> Any:
    return _option(_SETTINGS, takes, meaning, *names)


def _how(takes: str | None, meaning: str, *names: str, **limits: Any) -> Any:
    return _option(_HOW, takes, meaning, *names, **limits)


def _only(takes: str, meaning: str) -> Any:
    return _option(_ONLY, takes, meaning)


def _skip_unreadable(asked: bool) -> None:
    if asked:
        os.environ["REMASK_SKIP_UNREADABLE"] = "1"  # the user's own function loads the folder


_MASK = (
    "What the logits of absent classes are set to: `none`, `-inf` or a number <= 0. "
    "Several: `none,-1,-inf`."
)
ConfigFile = Annotated[
    Path | None, _what("FILE", "A TOML file with any of the settings below; options win over it.")
]
Benchmark = Annotated[
    str | None,
    _what(
        "NAME",
        "What to learn; see `remask benchmarks`. Or your own, `module:function`. "
        "Default: split-digits.",
    ),
]
Methods = Annotated[
    str | None,
    _what(
        "NAMES",
        "How to learn it; see `remask methods`. Or your own, `module:Class`. "
        "Several: `er,derpp`. Default: er.",
    ),
]
Masks = Annotated[str | None, _what("MASKS", _MASK)]
PositiveMask = Annotated[
    bool, _option(_WHAT, None, "Allow masks above 0; the paper has none.", "--positive-mask")
]
MaskStored = Annotated[
    bool,
    _option(
        _WHAT,
        None,
        "Store logits as a finite mask leaves them, not the raw ones (DER, DER++).",
        "--mask-stored",
    ),
]
Fade = Annotated[
    float | None,
    _what(
        "X",
        "Fade the mask to the share min(1, X * buffer / samples so far): nothing is masked while "
        "the memory covers the past. 0: never.",
    ),
]
Buffers = Annotated[str | None, _what("SIZES", "Samples the memory holds. Several: `200,500`.")]
Trials = Annotated[int | None, _what("N", "Seeds to run. Default: 10.")]
DemoTrials = Annotated[int, _option(_WHAT, "N", "Seeds to run.", min=1, max=1000)]
Seed = Annotated[int | None, _what("N", "The first seed. Default: 0.")]

LearningRate = Annotated[float | None, _setting("X", "Learning rate.")]
Batch = Annotated[int | None, _setting("N", "Samples of the stream in a step.")]
ReplayBatch = Annotated[int | None, _setting("N", "Samples in one draw from memory.")]
Epochs = Annotated[int | None, _setting("N", "Passes over each task.")]
LearningRateDrops = Annotated[
    str | None,
    _setting(
        "EPOCHS", "Epochs of each task after which the learning rate falls to a tenth: `35,45`."
    ),
]
Alpha = Annotated[float | None, _setting("X", "Weight of the distillation (DER, DER++).")]
Beta = Annotated[float | None, _setting("X", "Weight of the replayed labels (DER++).")]
Weights = Annotated[
    list[str] | None,
    _setting("NAME=X", "A weight that only this method has. May be repeated.", "--weight"),
]
Net = Annotated[
    str | None,
    _setting(
        "NAME", "`mlp`, `resnet18`, `resnet18:20` for width 20, or your own, `module:function`."
    ),
]
Tasks = Annotated[int | None, _setting("N", "Deal the classes to so many tasks.")]
ClassOrder = Annotated[
    str | None,
    _setting("ORDER", "The order of the classes, `3,1,0,2`, or one number: a seed to draw it."),
]
Limit = Annotated[
    int | None, _setting("N", "Keep only so many samples of each class, for a quick look.")
]
Validation = Annotated[
    float | None,
    _setting(
        "SHARE",
        "Hold out this share of each class's training data, such as 0.1, and measure on it, too: "
        "what to choose settings by.",
    ),
]
TaskFree = Annotated[
    bool, _setting(None, "Tell no task boundaries: mask by each batch's labels.", "--task-free")
]

Data = Annotated[Path | None, _how("PATH", "A folder or archive that has the dataset already.")]
Device = Annotated[str, _how("NAME", "Where to compute, as torch names it: cpu, cuda, mps.")]
Workers = Annotated[
    int | None, _how("N", "Processes to run at once. Default: one a core.", min=1, max=4096)
]
Threads = Annotated[int, _how("N", "Threads of each process.", min=1, max=4096)]
Stack = Annotated[
    int | None,
    _how(
        "N",
        "The most trials to train as one. Default: 10; 1 for convolutions on a CPU.",
        min=1,
        max=100_000,
    ),
]
Again = Annotated[bool, _how(None, "Run and replace also what the store already has.", "--again")]
OwnCode = Annotated[
    bool,
    _how(None, "Import the `module:name` that a file names, too: importing runs it.", "--own-code"),
]
SkipUnreadable = Annotated[
    bool,
    _how(
        None,
        "Leave out images that cannot be read, and name them, instead of refusing the folder.",
        "--skip-unreadable",
        callback=_skip_unreadable,
    ),
]
CheckpointSeconds = Annotated[
    float, _how("X", "Seconds between checkpoints within a task.", min=0.1)
]
SaveNets = Annotated[
    Path | None,
    _how("FOLDER", "Also save every finished trial's net there; `remask.load_net` reads it back."),
]
JsonFile = Annotated[Path | None, _how("FILE", "Also write the trials' results to this file.")]
StorePath = Annotated[
    Path | None,
    _option(
        None,
        "FILE",
        "The results store, an SQLite file. Default: $REMASK_STORE, else "
        "`~/.local/share/remask/results.db`.",
    ),
]

Experiment = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT",
        help="`main`, `low-buffer`, `ablation`, `confidence`, `appendix`, `all`; or several, "
        "comma-separated.",
    ),
]
PaperBenchmarks = Annotated[
    str, _what("NAMES", "On which benchmarks of the paper. Several: `split-mnist,split-cifar10`.")
]
PaperTrials = Annotated[
    int | None, _option(_WHAT, "N", "Seeds to run. Default: as many as the paper.", min=1, max=1000)
]
DryRun = Annotated[
    bool, _how(None, "Say what would be run and how long it would take, and leave.", "--dry-run")
]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="A table for a document, not for the terminal.")
]
GridFile = Annotated[Path, typer.Argument(metavar="GRID.toml", help="What to sweep over.")]
Page = Annotated[Path, typer.Argument(metavar="FILE", help="The HTML file to write.")]
Figures = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Also draw the figures, as SVG and PNG, in this folder."),
]
Watch = Annotated[
    bool, typer.Option("--watch", help="Write the page anew whenever a trial comes in.")
]

OnlyBenchmarks = Annotated[str | None, _only("NAMES", "Benchmarks, comma-separated.")]
OnlyMethods = Annotated[
    str | None,
    _only("NAMES", "Methods by any name: `er` with or without mask, `mser` with one, `MSER(-1)`."),
]
OnlyMasks = Annotated[str | None, _only("MASKS", "Masks, such as `none,-inf`.")]
OnlyBuffers = Annotated[str | None, _only("SIZES", "Buffer sizes.")]
OnlySeeds = Annotated[str | None, _only("SEEDS", "Seeds.")]
OnlyStatus = Annotated[str | None, _only("STATUS", "finished, diverged or failed.")]
OnlyHashes = Annotated[str | None, _only("HASHES", "Hashes, or enough of their beginnings.")]
Since = Annotated[str | None, _only("DATE", "What was made since, such as 2026-01-31.")]


def open_store(given: Path | None) -> Store:
    """Open the store a user means, making it if need be."""
    return Store(store_path(given))


def filters(context: typer.Context) -> dict[str, object]:
    """The filters of a command that has some of the `Only...` options, as the store takes them."""
    given = {name: context.params.get(name) for name in FILTERS}
    return {
        name: text if name == "since" else [part.strip() for part in text.split(",")]
        for name, text in given.items()
        if text is not None
    }
