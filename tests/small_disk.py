"""A disk that is soon full."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SIZE = "24m"


def fill_disk(path: Path) -> None:
    """Write a file that leaves no room on its disk."""
    with suppress(OSError), path.open("ab", buffering=0) as filler:
        while True:
            filler.write(b"\0" * 4096)


@contextmanager
def small_disk(folder: Path, *, wanted: bool = True) -> Iterator[bool]:
    """A disk of its own for a folder, if one is wanted and may be mounted; whether it is there."""
    if not wanted or not _mount(folder):
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def can_mount() -> bool:
    """Whether a small disk can be made here."""
    with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder)) as is_there:
        return is_there


def _mount(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(folder)]
    if shutil.which("mount") is None:
        return False
    return subprocess.run(command, capture_output=True).returncode == 0
