"""A disk that is soon full."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SIZE = "24m"


def fill(folder: Path) -> None:
    """Leave no room on the disk of that folder."""
    with suppress(OSError), (folder / "filler").open("ab", buffering=0) as filler:
        while True:
            filler.write(b"\0" * 4096)


@contextmanager
def small_disk(folder: Path, *, wanted: bool) -> Iterator[bool]:
    """A disk of its own for a folder, if one is wanted and may be mounted; whether it is there."""
    if not wanted or not can_mount():
        yield False
        return
    options = ["-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs"]
    subprocess.run(["mount", *options, str(folder)], check=True)
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def can_mount() -> bool:
    """Whether a small disk can be made here."""
    return os.geteuid() == 0 and shutil.which("mount") is not None
