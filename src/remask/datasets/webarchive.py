"""A dataset's archive on the web, downloaded so that a broken download is resumed."""

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from remask.datasets.archives import Archive, Originals, open_archive
from remask.datasets.files import WrongContentsError
from remask.datasets.mirror import Download, Progress, partial_file


@dataclass(frozen=True)
class WebArchive:
    """An archive at an address."""

    url: str
    archive: Archive
    timeout: float = 10.0
    """Seconds to wait for the connection, and for each next piece."""
    patience: float = 60.0
    """Seconds that a download may take beyond those that it takes at the slowest speed."""

    def __str__(self) -> str:
        """Give the address."""
        return self.url

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Download to NAME.part in `folder` and open it there; it goes when all went well.

        It stays when what is done with it fails, so that it need not be downloaded again.
        """
        with partial_file(folder, self.archive.name) as partial:
            self._complete(folder, partial, progress)
            with open_archive(
                partial, self.archive.top, self.archive.unpacked_size, folder
            ) as originals:
                yield originals

    def _complete(self, folder: Path, partial: IO[bytes], progress: Progress) -> None:
        archive = self.archive
        download = Download(self.url, archive.name, archive.size, f"{archive.size}")
        complete = functools.partial(
            download.complete,
            folder,
            partial,
            progress,
            timeout=self.timeout,
            patience=self.patience,
        )
        have = partial.seek(0, os.SEEK_END)
        if have > 0:
            # What an earlier try left may be of another file; the checksum tells.
            with suppress(WrongContentsError):
                if have < archive.size:
                    complete()
                archive.check(partial)
                return
        partial.truncate(0)
        try:
            complete()
            archive.check(partial)
        except WrongContentsError:
            partial.truncate(0)  # nothing of it is worth resuming
            raise
