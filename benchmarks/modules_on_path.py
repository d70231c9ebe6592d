"""Count the modules of remask that take part in a trial and in a visit of a learner.

    python benchmarks/modules_on_path.py [--names]

Runs one trial of `remask run` on the embedded digits and one `Learner.learn`, and prints how many
modules of remask have functions that are called, and how many frames of remask are above a method's
`terms` at most.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np

import remask
from remask.cli import main as command_line

_TERMS = "terms"


def path_of(work: Callable[[], object]) -> tuple[set[str], list[str]]:
    """The modules whose functions `work` calls, and the deepest stack above `terms`."""
    modules: set[str] = set()
    deepest: list[str] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal deepest
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("remask.") or frame.f_code.co_name == "<module>":
            return
        modules.add(name)
        if frame.f_code.co_name == _TERMS and name.startswith("remask.methods"):
            stack = remask_frames(frame)
            deepest = max(deepest, stack, key=len)

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return modules, deepest


def remask_frames(frame: FrameType | None) -> list[str]:
    """The functions of remask above a frame, outermost first."""
    found: list[str] = []
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
        name = frame.f_globals.get("__name__", "")
        if name.startswith("remask.") and frame.f_code.co_name != "<module>":
            found.append(f"{name}.{frame.f_code.co_qualname}")
    return found[::-1]


def run_a_trial(folder: Path) -> None:
    """`remask run`, in this process."""
    sys.argv = [
        "remask", "run", "--benchmark", "split-digits", "--method", "er", "--trials", "1",
        "--epochs", "1", "--workers", "1", "--store", str(folder / "results.db"),
    ]  # fmt: skip
    with suppress(SystemExit):
        command_line()


def learn_once(folder: Path) -> None:
    """A new learner's first visit."""
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, (40, 1, 4, 4)).astype(np.uint8)
    labels = ["ant", "bee"] * 20
    learner = remask.Learner.create(folder / "learner")
    learner.learn(inputs, labels, name="first")


def main() -> None:
    """Print both counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", action="store_true", help="print the modules and the frames")
    names = parser.parse_args().names
    for title, work in (("remask run", run_a_trial), ("Learner.learn", learn_once)):
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            work(Path(first))  # imports call functions too
            modules, stack = path_of(partial(work, Path(second)))
        print(f"{title}: {len(modules)} modules, {len(stack)} frames above a method's terms")
        if names:
            print("  modules:", ", ".join(sorted(modules)))
            print("  frames:", " > ".join(stack))


if __name__ == "__main__":
    main()
