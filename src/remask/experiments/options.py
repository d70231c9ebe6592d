"""The options of a run, which do not change its results."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from remask.config import OnCommandLine
from remask.console import PlainConsole, errors, silence
from remask.errors import SettingsError, describe_errors
from remask.loggers import Logger, check_place

_PathLike = BeforeValidator(lambda path: os.fspath(path) if isinstance(path, os.PathLike) else path)
_Path = Annotated[Path, _PathLike]
_Place = Annotated[str, _PathLike]
# Above these, the system's own errors explain nothing.
_MOST_PROCESSES = 4096
_MOST_STACKED = 100_000
_Count = Annotated[int, Field(ge=1, le=_MOST_PROCESSES, strict=True)]
_CLUSTER_ONLY = ("address", "cpus", "gpus", "checkpoints", "logs")


class RunOptions(
    BaseModel, frozen=True, extra="forbid", defer_build=True, arbitrary_types_allowed=True
):
    """How to run trials. Nothing here changes their results, except for rounding."""

    device: str = Field("cpu", description="The torch device: cpu, cuda, mps.")
    workers: _Count | None = Field(None, description="Processes. Default: one per core.")
    threads: _Count = Field(1, description="Threads of each process.")
    stack: Annotated[int, Field(ge=1, le=_MOST_STACKED, strict=True)] | None = Field(
        None,
        description="Trials to train as one, at most. Default: 10; 1 for convolutions on a CPU.",
    )
    again: bool = Field(False, description="Also run what the store already has, and replace it.")
    data: _Path | None = Field(None, description="A folder or archive with the dataset.")
    checkpoint_seconds: float = Field(
        60.0, ge=0.1, description="Seconds between checkpoints within a task."
    )
    save_nets: _Path | None = Field(
        None,
        description="Also save every finished trial's net in this folder, for `remask.load_net`.",
    )
    log: Annotated[
        tuple[str | Logger, ...],
        BeforeValidator(lambda given: (given,) if isinstance(given, str | Logger) else given),
        OnCommandLine("KIND:TARGET", repeated_as="log"),
    ] = Field(
        (),
        description="Log losses and accuracies during the run: `csv:FILE`, `jsonl:FILE`, "
        "`tensorboard:FOLDER`, `wandb:PROJECT`, `mlflow:FOLDER`, or your own `module:Class`; may "
        "be repeated.",
    )
    log_every: Annotated[int, Field(ge=0, le=10**9, strict=True)] | None = Field(
        None,
        description="Steps that each logged loss is averaged over. 0, the default with --log: "
        "about 50 points per task, at least 10 steps each. Without --log, losses go only into the "
        "store.",
    )
    on: Annotated[Literal["ray"] | None, OnCommandLine("WHERE")] = Field(
        None, description="Run on a cluster: `ray`. Default: on this machine."
    )
    address: Annotated[str | None, OnCommandLine("HOST:PORT")] = Field(
        None,
        description="The Ray cluster; `local` starts one on this machine. Default: $RAY_ADDRESS, "
        "else the cluster of this machine, else a new one on it.",
    )
    cpus: Annotated[float, Field(gt=0, le=_MOST_PROCESSES)] | None = Field(
        None, description="CPUs per stack on a cluster. Default: --threads."
    )
    gpus: Annotated[float, Field(ge=0, le=_MOST_PROCESSES)] | None = Field(
        None,
        description="GPUs per stack on a cluster; with a fraction, stacks share one. Default: 1 "
        "with --device cuda.",
    )
    tries: Annotated[int, Field(ge=1, le=1000, strict=True)] = Field(
        3, description="Attempts per stack on a cluster."
    )
    checkpoints: Annotated[_Place | None, OnCommandLine("PLACE")] = Field(
        None,
        description="A folder shared by all nodes of a cluster, or `s3://bucket/folder`: a stack "
        "whose node died continues from there.",
    )
    logs: _Path | None = Field(
        None, description="A folder for the output of stacks on a cluster, a file each."
    )
    progress: bool | None = Field(
        None,
        description="Default: bars on a terminal, elsewhere only warnings. True: elsewhere also a "
        "line per cell. False: nothing.",
    )

    def __init__(self, **given: Any) -> None:
        if given.get("log") and given.get("log_every") is None:
            given["log_every"] = 0
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise SettingsError(describe_errors(error)) from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for place in self.log:
            if isinstance(place, str):
                check_place(place)
        for name in ("cpus", "gpus"):
            number = getattr(self, name) or 0.0
            if number > 1 and number != int(number):
                raise ValueError(f"{name} = {number:g}: use a fraction of 1, or a whole number")
        if self.address is not None and self.address.startswith("ray://"):
            raise ValueError(
                f"address = {self.address!r}: Ray Client addresses are not supported: run the "
                f"command on a node of the cluster with HOST:PORT, or use `ray job submit`"
            )
        given = [name for name in _CLUSTER_ONLY if getattr(self, name) is not None]
        if given and self.on is None:
            raise ValueError(f"{given[0]} is for a cluster: also set on='ray' (--on ray)")
        return self

    @property
    def processes(self) -> int:
        """Number of processes to run."""
        return self.workers or len(os.sched_getaffinity(0))

    @property
    def console(self) -> PlainConsole:
        """The console for messages during the run."""
        return silence if self.progress is False else errors
