"""How to run trials, as far as it is for the user to say."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from remask.console import PlainConsole, errors, silence
from remask.errors import SettingsError
from remask.loggers import Logger, check_place
from remask.setting_types import OnCommandLine

_Path = Annotated[
    Path, BeforeValidator(lambda path: Path(path) if isinstance(path, os.PathLike) else path)
]
_Place = Annotated[
    str,
    BeforeValidator(lambda place: os.fspath(place) if isinstance(place, os.PathLike) else place),
]
# Beyond these, the system refuses in ways that explain nothing.
_MOST_PROCESSES = 4096
_MOST_STACKED = 100_000
_Count = Annotated[int, Field(ge=1, le=_MOST_PROCESSES, strict=True)]
_SHORTEST_TIME = 0.1
_NEEDED = {
    **dict.fromkeys(
        ("workers", "threads"), f"a whole number from 1 to {_MOST_PROCESSES} is needed"
    ),
    "stack": f"a whole number from 1 to {_MOST_STACKED} is needed",
    "checkpoint_seconds": f"at least {_SHORTEST_TIME:g} is needed",
    "on": "'ray', or nothing for this machine, is needed",
    "log_every": "a whole number from 0 is needed",
    "tries": "a whole number from 1 to 1000 is needed",
    **dict.fromkeys(("cpus", "gpus"), "a fraction of 1, or a whole number, is needed"),
}
_OF_A_CLUSTER = ("address", "cpus", "gpus", "checkpoints", "logs")


class RunOptions(BaseModel):
    """How to run trials; nothing here changes their results, but for rounding."""

    # Worker processes get them as JSON, and checkpoints may be an infinite time apart.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        defer_build=True,
        ser_json_inf_nan="constants",
        arbitrary_types_allowed=True,
    )

    device: str = Field("cpu", description="Where to compute, as torch names it: cpu, cuda, mps.")
    workers: _Count | None = Field(
        None, description="Processes to run at once. Default: one per core."
    )
    threads: _Count = Field(1, description="Threads of each process.")
    stack: Annotated[int, Field(ge=1, le=_MOST_STACKED, strict=True)] | None = Field(
        None,
        description="The most trials to train as one. Default: 10; 1 for convolutions on a CPU.",
    )
    again: bool = Field(False, description="Run and replace also what the store already has.")
    data: _Path | None = Field(
        None, description="A folder or archive that has the dataset already."
    )
    checkpoint_seconds: float = Field(
        60.0, ge=_SHORTEST_TIME, description="Seconds between checkpoints within a task."
    )
    save_nets: _Path | None = Field(
        None,
        description="Also save every finished trial's net in this folder; `remask.load_net` reads "
        "it back.",
    )
    log: Annotated[
        tuple[str | Logger, ...],
        BeforeValidator(lambda given: (given,) if isinstance(given, str | Logger) else given),
        OnCommandLine("KIND:TARGET", repeated_as="log"),
    ] = Field(
        (),
        description="Log losses and accuracies on the way: `csv:FILE`, `jsonl:FILE`, "
        "`tensorboard:FOLDER`, `wandb:PROJECT`, `mlflow:FOLDER`, or your own `module:Class`; may "
        "be given several times.",
    )
    log_every: Annotated[int, Field(ge=0, le=10**9, strict=True)] | None = Field(
        None,
        description="Steps that a logged loss is the mean of; 0, the default with --log: as many "
        "as give a task 50 points, and at least 10. Without --log, losses go into the store alone.",
    )
    on: Annotated[Literal["ray"] | None, OnCommandLine("WHERE")] = Field(
        None, description="Run on a cluster: `ray`. Default: on this machine."
    )
    address: Annotated[str | None, OnCommandLine("HOST:PORT")] = Field(
        None,
        description="Of the Ray cluster; `local` starts a new one on this machine. Default: "
        "$RAY_ADDRESS, else the one that this machine is in, else a new one on this machine.",
    )
    cpus: Annotated[float, Field(gt=0, le=_MOST_PROCESSES)] | None = Field(
        None, description="CPUs of each stack on a cluster. Default: as many as --threads."
    )
    gpus: Annotated[float, Field(ge=0, le=_MOST_PROCESSES)] | None = Field(
        None,
        description="GPUs of each stack on a cluster; with a fraction, stacks share one. Default: "
        "1 with --device cuda.",
    )
    tries: Annotated[int, Field(ge=1, le=1000, strict=True)] = Field(
        3, description="How often to try a stack on a cluster that dies or fails."
    )
    checkpoints: Annotated[_Place | None, OnCommandLine("PLACE")] = Field(
        None,
        description="A folder that all nodes of a cluster share, or `s3://bucket/folder`: a stack "
        "whose node died goes on from there.",
    )
    logs: _Path | None = Field(
        None, description="A folder for what stacks on a cluster print, a file each."
    )
    progress: bool | None = Field(
        None,
        description="Default: bars on a terminal, elsewhere only what must be said. True: "
        "elsewhere also a line per cell. False: nothing.",
    )

    def __init__(self, **given: Any) -> None:
        if given.get("log") and given.get("log_every") is None:
            given["log_every"] = 0
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise SettingsError(_explain(error)) from None

    @field_validator("log")
    @classmethod
    def _check_log(cls, log: tuple[str | Logger, ...]) -> tuple[str | Logger, ...]:
        for place in log:
            if isinstance(place, str):
                check_place(place)
        return log

    @field_validator("cpus", "gpus")
    @classmethod
    def _check_parts(cls, number: float | None) -> float | None:
        if number is not None and number > 1 and number != int(number):
            raise ValueError
        return number

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str | None) -> str | None:
        if address is not None and address.startswith("ray://"):
            raise ValueError(
                "not the address of a client: run the command on a node of the cluster and give "
                "HOST:PORT, or hand the command to `ray job submit`"
            )
        return address

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        given = [name for name in _OF_A_CLUSTER if getattr(self, name) is not None]
        if given and self.on is None:
            raise ValueError(f"{given[0]} is for a cluster: say on = 'ray' (--on ray) as well")
        return self

    @property
    def processes(self) -> int:
        """How many processes to run."""
        return self.workers or _cores()

    @property
    def console(self) -> PlainConsole:
        """Where to say what happens on the way."""
        return silence if self.progress is False else errors


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    if not first["loc"]:  # of options that do not go together
        return str(first["ctx"]["error"])
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        known = ", ".join(RunOptions.model_fields)
        return f"there is no option {name!r}; there are {known}"
    return f"{name} = {first['input']!r}: {_NEEDED.get(name, first['msg'])}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
