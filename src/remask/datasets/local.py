"""Data that is on the disk already: folders and archives of users, packages of the system."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from remask.datasets.files import NothingThereError, Progress, SourceError
from remask.datasets.originals import Archive, Folder, Originals


@dataclass(frozen=True)
class Version:
    """One of the forms in which users may have a dataset."""

    marker: str
    """The file by which a folder is recognised."""
    archive: Archive | None = None
    folders: tuple[str, ...] = ()
    """Where in a user's folder its files may be, besides the folder itself and the one that the
    archive unpacks to."""
    rebuilt: Callable[[Originals], Originals] = lambda originals: originals
    """Offers the files that the dataset is made from, where they are not the originals."""

    def places(self) -> tuple[str, ...]:
        """All folders in a user's folder in which its files may be."""
        return (*self.folders, self.archive.top) if self.archive else self.folders


@dataclass(frozen=True)
class LocalSource:
    """What a user says has the original files: their folder, one around it, or the archive."""

    path: Path
    versions: tuple[Version, ...]
    """The first that is there is taken."""

    def __str__(self) -> str:
        """Give the path."""
        return str(self.path)

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Open what is there; an archive must be the published one, byte for byte."""
        try:
            version, found = self._found()
        except OSError as error:
            raise SourceError(f"cannot read {self.path}: {error.strerror}") from error
        if isinstance(found, Folder):
            yield version.rebuilt(Originals(found.open))
        elif version.archive is None:
            raise SourceError(f"it is a file; give the folder that holds {version.marker}")
        else:
            with version.archive.opened(found, folder) as originals:
                yield version.rebuilt(originals)

    def _found(self) -> tuple[Version, Folder | Path]:
        """The version that is there, and its files or its archive."""
        if self.path.is_file():
            # By its name, which a browser may have changed to "cifar-10-python (1).tar.gz".
            stems = {v.archive.name.partition(".")[0]: v for v in self.versions if v.archive}
            named = (version for stem, version in stems.items() if stem in self.path.name)
            return next(named, self.versions[0]), self.path
        for version in self.versions:
            unpacked = Folder((self.path, *(self.path / place for place in version.places())))
            if unpacked.find(version.marker) is not None:
                return version, unpacked
            if version.archive and (packed := self.path / version.archive.name).is_file():
                return version, packed
        raise NothingThereError(f"it holds none of {', '.join(self._expected())}")

    def _expected(self) -> Iterator[str]:
        for version in self.versions:
            yield version.marker
            yield from (f"the folder {place}" for place in version.places())
            if version.archive:
                yield version.archive.name
