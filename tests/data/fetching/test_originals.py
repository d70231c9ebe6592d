"""Malicious and broken archives: nothing is extracted, and no declared size is trusted."""

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

from remask.data.originals import (
    Folder,
    Originals,
    SourceError,
    WrongContentsError,
    open_archive,
    read_pieces,
    read_small,
)

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
        with pytest.raises(SourceError, match=f"neither {name} nor {name}.gz is in"):
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


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_refused(tmp_path: Path, kind: str) -> None:
    packed = (
        tarball(("top/a", FILE, b"1"), ("top/a", FILE, b"2"))
        if kind == "tar"
        else zipped(("top/a", b"1"), ("top/a", b"2"))
    )
    with (
        pytest.raises(WrongContentsError, match="top/a is in the archive twice"),
        opened(packed, tmp_path),
    ):
        pass


def zipped_link() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        info = zipfile.ZipInfo("top/a")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(info, "/etc/hostname")
    return buffer.getvalue()


def encrypted() -> bytes:
    packed = bytearray(zipped(("top/a", BODY)))
    packed[6] |= 1  # the flag "encrypted" in the file's header,
    packed[packed.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    return bytes(packed)


def altered() -> bytes:
    packed = bytearray(zipped(("top/a", BODY), compression=zipfile.ZIP_STORED))
    packed[packed.index(BODY[:20]) + 5] ^= 1
    return bytes(packed)


def understated() -> bytes:
    """A zip that declares a smaller size than its file has."""
    packed, size = zipped(("top/a", b"x" * 4_999)), (4_999).to_bytes(4, "little")
    assert packed.count(size) == 2  # in the file's own header and in the directory
    return packed.replace(size, (10).to_bytes(4, "little"))


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        *(
            (tarball(("top/a", kind, b"")), "not a regular file")
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
        ),
        (zipped_link(), "not a regular file"),
        (zipped(("top/a", BODY), compression=zipfile.ZIP_LZMA), "unsupported compression"),
        (zipped(("top/a", BODY), compression=zipfile.ZIP_BZIP2), "unsupported compression"),
        (encrypted(), "password"),
        (altered(), "cannot be read: Bad CRC"),
        (understated(), "cannot be read: Bad CRC"),
    ],
    ids=[
        "symlink",
        "hardlink",
        "fifo",
        "device",
        "zip-link",
        "lzma",
        "bzip2",
        "password",
        "altered",
        "understated",
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(
    tmp_path: Path, packed: bytes, reason: str
) -> None:
    with (
        opened(packed, tmp_path) as originals,
        pytest.raises(WrongContentsError, match=reason),
    ):
        read_small(originals, "a", 5_000)


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
        with pytest.raises(WrongContentsError, match="50000000 bytes, expected at most 1000"):
            read_small(originals, "a", 1_000)
        with pytest.raises(WrongContentsError, match="50000000 bytes, expected at most 10"):
            next(read_pieces(originals, "a", 10, 10))


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (WHOLE["tar"][:-50], "the tarball cannot be read: .* ended before"),
        (gzip.compress(b"not a tarball" * 100), "not a complete tarball"),
        (WHOLE["zip"][:-50], "not a complete zip file"),
        (b"PK\x03\x04", "not a complete zip file"),
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
        pytest.raises(WrongContentsError, match=r"not a complete tarball: unexpected end of data"),
        opened(gzip.compress(plain[:2_000]), tmp_path) as originals,
    ):
        read_small(originals, "a", 5_000)
