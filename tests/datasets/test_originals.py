"""Archives that mean harm, or are merely broken: nothing is extracted, nothing is believed."""

import gzip
import io
import random
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remask.datasets.files import SourceError, WrongContentsError
from remask.datasets.originals import Folder, Originals, open_archive, read_pieces, read_small

BODY = random.Random(0).randbytes(5_000)


@contextmanager
def opened(packed: bytes, workplace: Path, unpacked_size: int = 100_000) -> Iterator[Originals]:
    with open_archive(io.BytesIO(packed), "top", unpacked_size, workplace) as originals:
        yield originals


def tarball(*members: tuple[str, bytes, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, kind, contents in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(contents), "/etc/hostname"
            tar.addfile(info, io.BytesIO(contents))
    return buffer.getvalue()


def zipped(*members: tuple[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as packed:
        for name, contents in members:
            packed.writestr(name, contents)
    return buffer.getvalue()


FILE = tarfile.REGTYPE
WHOLE = {
    "tar": tarball(("top/a", FILE, BODY), ("top/sub/b", FILE, b"b"), ("other/c", FILE, b"c")),
    "zip": zipped(("top/a", BODY), ("top/sub/b", b"b"), ("other/c", b"c")),
}


@pytest.fixture(params=["tar", "zip"])
def whole(request: pytest.FixtureRequest) -> bytes:
    return WHOLE[str(request.param)]


def test_the_files_of_the_top_folder_are_read(whole: bytes, tmp_path: Path) -> None:
    with opened(whole, tmp_path) as originals:
        assert not originals.verified, "no checksum has vouched for it"
        assert read_small(originals, "a", 5_000) == BODY
        assert read_small(originals, "sub/b", 1) == b"b"
        pieces = list(read_pieces(originals, "a", 5_000, 2_000))
    assert [len(piece) for piece in pieces] == [2_000, 2_000, 1_000]
    assert b"".join(pieces) == BODY
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_read_like_an_archive(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_bytes(b"b")
    originals = Originals(Folder((tmp_path,)).open)
    assert read_small(originals, "sub/b", 1) == b"b"
    for name in ("sub/c", "sub"):
        with pytest.raises(SourceError, match=f"there is no {name}, as it is or as .gz"):
            read_small(originals, name, 1)


def test_a_file_outside_the_top_folder_cannot_be_asked_for(whole: bytes, tmp_path: Path) -> None:
    with opened(whole, tmp_path) as originals:
        for name in ("../other/c", "c", "/etc/hostname", "../../etc/hostname"):
            with pytest.raises(WrongContentsError, match="the archive lacks"):
                read_small(originals, name, 100)


@pytest.mark.parametrize(
    "name", ["../a", "/top/a", "top/../a", "top/../../top/a", "top/./../top/a"]
)
def test_members_that_point_outside_are_passed_over(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    for packed in (tarball((name, FILE, b"evil")), zipped((name, b"evil"))):
        with opened(packed, inside) as originals:
            for asked in ("a", "../a", name, name.removeprefix("top/")):
                with pytest.raises(WrongContentsError, match="lacks"):
                    read_small(originals, asked, 100)
    assert list(tmp_path.iterdir()) == [inside]
    assert list(inside.iterdir()) == []


def test_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(WrongContentsError, match="top/a is in the archive twice"),
        opened(tarball(("top/a", FILE, b"1"), ("top/a", FILE, b"2")), tmp_path),
    ):
        pass
    with pytest.warns(UserWarning, match="Duplicate name"):
        packed = zipped(("top/a", b"1"), ("top/a", b"2"))
    with (
        pytest.raises(WrongContentsError, match="top/a is in the archive twice"),
        opened(packed, tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_links_and_devices_in_a_tarball_are_refused(tmp_path: Path, kind: bytes) -> None:
    with (
        opened(tarball(("top/a", kind, b"")), tmp_path) as originals,
        pytest.raises(WrongContentsError, match="not a regular file"),
    ):
        read_small(originals, "a", 100)


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        info = zipfile.ZipInfo("top/a")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(info, "/etc/hostname")
    with (
        opened(buffer.getvalue(), tmp_path) as originals,
        pytest.raises(WrongContentsError, match="not a regular file"),
    ):
        read_small(originals, "a", 100)


def test_a_tarball_that_grows_beyond_its_size_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(WrongContentsError, match="unpacks to more than"),
        opened(gzip.compress(bytes(40_000_000)), tmp_path, unpacked_size=100),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_large_file_in_a_small_zip_is_refused_before_it_is_read(tmp_path: Path) -> None:
    bomb = zipped(("top/a", bytes(50_000_000)))
    assert len(bomb) < 100_000
    with opened(bomb, tmp_path) as originals:
        with pytest.raises(WrongContentsError, match="50000000 bytes, where at most 1000"):
            read_small(originals, "a", 1_000)
        with pytest.raises(WrongContentsError, match="50000000 bytes, where at most 10"):
            next(read_pieces(originals, "a", 10, 10))


def test_a_zip_that_understates_a_size_gives_no_more_than_it_states(tmp_path: Path) -> None:
    honest = zipped(("top/a", b"x" * 5_000))
    size = (5_000).to_bytes(4, "little")
    assert honest.count(size) == 2  # in the file's own header and in the directory
    with (
        opened(honest.replace(size, (10).to_bytes(4, "little")), tmp_path) as originals,
        pytest.raises(WrongContentsError, match="cannot be read: Bad CRC"),
    ):
        read_small(originals, "a", 100)


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_unusual_compression_is_refused(tmp_path: Path, compression: int) -> None:
    with (
        opened(zipped(("top/a", BODY), compression=compression), tmp_path) as originals,
        pytest.raises(WrongContentsError, match="unusual way"),
    ):
        read_small(originals, "a", 5_000)


def test_a_zip_that_asks_for_a_password_is_refused(tmp_path: Path) -> None:
    packed = bytearray(zipped(("top/a", BODY)))
    packed[6] |= 1  # the flag "encrypted" in the file's header,
    packed[packed.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    with (
        opened(bytes(packed), tmp_path) as originals,
        pytest.raises(WrongContentsError, match="password"),
    ):
        read_small(originals, "a", 5_000)


def test_altered_bytes_in_a_zip_are_noticed(tmp_path: Path) -> None:
    packed = bytearray(zipped(("top/a", BODY), compression=zipfile.ZIP_STORED))
    packed[packed.index(BODY[:20]) + 5] ^= 1
    with (
        opened(bytes(packed), tmp_path) as originals,
        pytest.raises(WrongContentsError, match="cannot be read: Bad CRC"),
    ):
        read_small(originals, "a", 5_000)


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (WHOLE["tar"][:-50], "the tarball cannot be read: .* ended before"),
        (gzip.compress(b"not a tarball" * 100), "not a whole tarball"),
        (WHOLE["zip"][:-50], "not a whole zip file"),
        (b"PK\x03\x04", "not a whole zip file"),
        (b"<html>Please log in</html>", r"neither a \.tar\.gz nor a \.zip"),
        (b"", r"neither a \.tar\.gz nor a \.zip"),
    ],
    # The bytes hold the time of packing: as names they would differ from process to process.
    ids=["cut tar", "gzip of something else", "cut zip", "start of a zip", "web page", "nothing"],
)
def test_a_broken_archive_is_refused(tmp_path: Path, packed: bytes, reason: str) -> None:
    with pytest.raises(WrongContentsError, match=reason), opened(packed, tmp_path):
        pass


def test_a_tarball_cut_within_a_file_is_refused(tmp_path: Path) -> None:
    plain = gzip.decompress(tarball(("top/a", FILE, BODY)))
    with (
        pytest.raises(WrongContentsError, match=r"not a whole tarball: unexpected end of data"),
        opened(gzip.compress(plain[:2_000]), tmp_path) as originals,
    ):
        read_small(originals, "a", 5_000)
