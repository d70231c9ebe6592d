"""Mutation tests: change one line at a time and check that the named tests fail.

`python -m tests.mutants [WORD ...]` runs the mutants of `mutants.toml` that contain all words.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SECONDS = 600


@dataclass(frozen=True)
class Mutant:
    """A change of one place in a file, and the tests that must notice it."""

    file: str
    old: str
    new: str
    tests: str

    def __str__(self) -> str:
        return f"{self.file}: {self.old.strip()!r} -> {self.new.strip()!r}"


MUTANTS = [
    Mutant(**each) for each in tomllib.loads((ROOT / "tests/mutants.toml").read_text())["mutant"]
]


def survives(mutant: Mutant, tree: Path) -> bool:
    """Whether the tests pass although the mutant was put into a copy of the source."""
    path = tree / "src" / "remask" / mutant.file
    source = path.read_text()
    if source.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.file} must contain {mutant.old!r} exactly once")
    path.write_text(source.replace(mutant.old, mutant.new))
    tests = [f"tests/{each}" for each in mutant.tests.split()]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:  # an endless loop is noticed, too
        return False
    finally:
        path.write_text(source)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout.decode()[-3000:])
    return done.returncode == 0


def main(words: Sequence[str]) -> None:
    """Run the mutants, and exit with an error if one survives."""
    chosen = [m for m in MUTANTS if all(word in str(m) for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, tree / name)
        shutil.copy(ROOT / "pyproject.toml", tree)
        survivors = []
        for mutant in chosen:
            if survives(mutant, tree):
                survivors.append(mutant)
            print("survives" if mutant in survivors else "killed  ", mutant, flush=True)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were killed")
    raise SystemExit(bool(survivors))


if __name__ == "__main__":
    main(sys.argv[1:])
