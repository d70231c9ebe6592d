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
    """Where in a user's folder its files may be, beside in itself and in what the archive unpacks
    to."""
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
        if self.path.is_file():
            version, archive = self._named()
            with archive.opened(self.path, folder) as originals:
                yield version.rebuilt(originals)
            return
        for version in self.versions:
            places = (self.path, *(self.path / place for place in version.places()))
            if (unpacked := Folder(places)).find(version.marker) is not None:
                yield version.rebuilt(Originals(unpacked.open))
                return
            if version.archive and (packed := self.path / version.archive.name).is_file():
                with version.archive.opened(packed, folder) as originals:
                    yield version.rebuilt(originals)
                return
        raise NothingThereError(f"it holds none of {', '.join(self._expected())}")

    def _named(self) -> tuple[Version, Archive]:
        """The version by its archive's name, which may have become "cifar-10-python (1).tar.gz"."""
        packed = [(version, version.archive) for version in self.versions if version.archive]
        if not packed:
            raise SourceError(f"it is a file; give the folder that holds {self.versions[0].marker}")
        named = (one for one in packed if one[1].name.partition(".")[0] in self.path.name)
        return next(named, packed[0])

    def _expected(self) -> Iterator[str]:
        for version in self.versions:
            yield version.marker
            yield from (f"the folder {place}" for place in version.places())
            if version.archive:
                yield version.archive.name
