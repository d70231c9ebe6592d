"""How to run trials, as far as it is for the user to say."""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from remask.console import PlainConsole, errors, silence
from remask.errors import SettingsError

_Path = Annotated[
    Path, BeforeValidator(lambda path: Path(path) if isinstance(path, os.PathLike) else path)
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
}


class RunOptions(BaseModel):
    """How to run trials; nothing here changes their results."""

    # Worker processes get them as JSON, and checkpoints may be an infinite time apart.
    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, ser_json_inf_nan="constants"
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
    progress: bool | None = Field(
        None,
        description="Default: bars on a terminal, elsewhere only what must be said. True: "
        "elsewhere also a line per cell. False: nothing.",
    )

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise SettingsError(_explain(error)) from None

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
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        known = ", ".join(RunOptions.model_fields)
        return f"there is no option {name!r}; there are {known}"
    return f"{name} = {first['input']!r}: {_NEEDED.get(name, first['msg'])}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
