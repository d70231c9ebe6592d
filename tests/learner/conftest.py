"""Tests of learners write hundreds of files: they need not survive a power cut."""

from collections.abc import Iterator

import pytest

from remask import files


@pytest.fixture(autouse=True, scope="package")
def _no_waiting_for_disks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(files, "_sync_file", lambda stream: None)
        monkeypatch.setattr(files, "_sync_folder", lambda folder: None)
        yield
