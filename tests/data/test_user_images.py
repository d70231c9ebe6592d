"""Image files as cameras and programs write them."""

import io
import os
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps, features

from remask.data.images import ImageReader, UnreadableImageError, decode, list_images, user_formats
from remask.data.readers import InputFormat
from remask.data.user_data import read
from remask.errors import DataError

Pixels = npt.NDArray[np.uint8]
ORIENTATION = 0x0112


def photograph(height: int = 48, width: int = 64) -> Pixels:
    """A smooth colour picture in which no two corners are alike: [H, W, 3]."""
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    channels = (255 * x, 255 * y, 127 + 120 * np.sin(4 * x + 3 * y))
    return np.stack(channels, axis=-1).round().clip(0, 255).astype(np.uint8)


def read_one(path: Path, form: InputFormat | None = None) -> Pixels:
    source = read(path, labelled=False)
    (sample,) = source.samples(form or source.format())
    found: Pixels = sample
    return found


def channels_last(sample: Pixels) -> Pixels:
    return sample.transpose(1, 2, 0)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["png", "tiff", "webp", "jpg"])
def test_the_exif_orientation_is_applied(tmp_path: Path, kind: str, orientation: int) -> None:
    image = Image.fromarray(photograph(40, 60))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    path = tmp_path / f"photo.{kind}"
    image.save(path, exif=exif, quality=100) if kind != "webp" else image.save(
        path, exif=exif, lossless=True
    )
    plain = Image.open(path)
    assert plain.getexif().get(ORIENTATION, 1) == orientation
    plain.load()  # which turns a TIFF
    upright = np.asarray(
        (plain if kind == "tiff" else ImageOps.exif_transpose(plain)).convert("RGB")
    )
    assert upright.shape[:2] == ((60, 40) if orientation >= 5 else (40, 60))
    assert np.array_equal(channels_last(read_one(path)), upright)


def test_sixteen_bits_are_scaled_and_pixels_of_unknown_range_refused(tmp_path: Path) -> None:
    values = (np.arange(64 * 64) * 16).reshape(64, 64).astype(np.uint16)
    for name in ("a.png", "a.tiff"):
        Image.fromarray(values).save(tmp_path / name)
        sample = read_one(tmp_path / name)
        assert sample.shape == (1, 64, 64)
        assert np.array_equal(sample[0], values >> 8)
        assert sample.max() == 255
    colour = read_one(tmp_path / "a.png", InputFormat(shape=(3, 64, 64), dtype="uint8"))
    assert np.array_equal(colour, np.repeat(sample, 3, axis=0))
    Image.fromarray(np.ones((4, 4), dtype=np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match=r"a\.tiff: has 32 bits per pixel.*convert it to 8 or 16"):
        read_one(tmp_path / "a.tiff")


def _transparent_palette(image: Image.Image) -> Image.Image:
    flat = Image.new("P", image.size, 1)
    flat.putpalette([255, 0, 0, 0, 0, 255])
    flat.putpixel((0, 0), 0)
    flat.info["transparency"] = 0
    return flat


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    image = Image.fromarray(photograph())
    half = image.convert("RGBA")
    half.putalpha(Image.new("L", image.size, 0))
    half.putpixel((5, 3), (10, 20, 30, 255))
    half.save(tmp_path / "a.png")
    sample = channels_last(read_one(tmp_path / "a.png"))
    assert sample[3, 5].tolist() == [10, 20, 30]
    assert sample[0, 0].tolist() == [255, 255, 255]
    half.convert("LA").save(tmp_path / "grey.png")
    grey = read_one(tmp_path / "grey.png")
    assert grey.shape == (1, 48, 64)
    assert grey[0, 0, 0] == 255
    assert grey[0, 3, 5] < 30
    for name in ("p.png", "p.gif"):
        _transparent_palette(image).save(tmp_path / name, transparency=0)
        sample = channels_last(read_one(tmp_path / name))
        assert sample[0, 0].tolist() == [255, 255, 255], name
        assert sample[1, 1].tolist() == [0, 0, 255], name


MODES = {
    "jpg": ("RGB", "L", "1", "CMYK"),
    "png": ("RGB", "L", "1", "P"),
    "tiff": ("RGB", "L", "1", "P", "CMYK"),
    "bmp": ("RGB", "L", "1", "P"),
    "gif": ("RGB", "L", "1", "P"),
    "webp": ("RGB",),
    "avif": ("RGB",) if "avif" in features.modules and features.check("avif") else (),
}


@pytest.mark.parametrize(("kind", "mode"), [(k, mode) for k in MODES for mode in MODES[k]])
def test_every_format_and_mode_is_read_as_it_looks(tmp_path: Path, kind: str, mode: str) -> None:
    image = Image.fromarray(photograph())
    image = image.quantize(8) if mode == "P" else image.convert(mode)
    path = tmp_path / f"photo.{kind}"
    image.save(path)
    sample = read_one(path, InputFormat(shape=(3, 48, 64), dtype="uint8"))
    difference = channels_last(sample).astype(int) - np.asarray(image.convert("RGB"))
    assert np.abs(difference).mean() < (8 if mode == "1" or kind == "gif" else 3)


def test_the_first_frame_of_an_animation_is_read(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    for name in ("a.gif", "a.webp", "a.tiff", "a.mpo"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        sample = read_one(tmp_path / name)
        assert sample[0].min() > 240, name
        assert sample[1:].max() < 15, name


def test_grey_images_are_grey_unless_one_of_them_has_colour(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / "photos" / "a"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 100).save(folder / f"{number}.png")
    source = ImageReader(list_images(tmp_path / "photos", labelled=True))
    assert source.format().shape == (1, 8, 8)
    Image.new("RGB", (8, 8), "red").save(folder / "9.png")
    source = ImageReader(list_images(tmp_path / "photos", labelled=True))
    assert source.format().shape == (3, 8, 8)
    assert [sample.shape for sample in source.samples(source.format())] == [(3, 8, 8)] * 4
    grey = InputFormat(shape=(1, 8, 8), dtype="uint8")
    assert [sample.shape for sample in source.samples(grey)] == [(1, 8, 8)] * 4
    always = ImageReader(list_images(tmp_path / "photos", labelled=True), channels=3)
    assert always.format().shape == (3, 8, 8)


@pytest.mark.parametrize("size", [(48, 96), (96, 48)])
def test_images_are_cropped_and_not_squashed(tmp_path: Path, size: tuple[int, int]) -> None:
    """A circle in the centre stays one."""
    y, x = np.mgrid[0 : size[0], 0 : size[1]]
    inside = (y - size[0] / 2 + 0.5) ** 2 + (x - size[1] / 2 + 0.5) ** 2 < 18**2
    Image.fromarray((255 * inside).astype(np.uint8)).save(tmp_path / "a.png")
    sample = read_one(tmp_path / "a.png", InputFormat(shape=(1, 24, 24), dtype="uint8"))[0]
    rows, columns = (sample > 127).any(1).sum(), (sample > 127).any(0).sum()
    assert rows == columns == 18  # 36 of 48 pixels
    expected = ImageOps.fit(Image.open(tmp_path / "a.png"), (24, 24), Image.Resampling.BILINEAR)
    assert np.array_equal(sample, np.asarray(expected))


def test_a_large_jpeg_looks_as_if_it_was_decoded_at_full_size(tmp_path: Path) -> None:
    image = Image.fromarray(photograph(1040, 1120))
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    image.save(tmp_path / "a.jpg", quality=95, exif=exif)
    sample = read_one(tmp_path / "a.jpg", InputFormat(shape=(3, 64, 64), dtype="uint8"))
    whole = ImageOps.exif_transpose(Image.open(tmp_path / "a.jpg"))
    expected = np.asarray(ImageOps.fit(whole, (64, 64), Image.Resampling.BILINEAR))
    assert np.abs(channels_last(sample).astype(int) - expected).mean() < 1


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _bomb(path: Path) -> None:
    """A PNG whose header declares 13,000 x 13,000 pixels."""
    header = struct.pack(">IIBBBBB", 13_000, 13_000, 1, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        data += struct.pack(">I", len(body)) + kind + body
        data += struct.pack(">I", zlib.crc32(kind + body))
    path.write_bytes(data)


def _huge_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(300 << 20)


def _truncated(kind: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        buffer = io.BytesIO()
        Image.fromarray(photograph()).save(buffer, format=kind)
        path.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])

    return write


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "FIFO": (_fifo, "not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "folder": (lambda path: path.mkdir(), "not a regular file"),
    "link": (lambda path: path.symlink_to("nowhere"), "a symbolic link to a file that does not"),
    "empty": (lambda path: path.write_bytes(b""), "the file is empty"),
    "text": (lambda path: path.write_text("hello"), "not a PNG, JPEG, .* image"),
    "bomb": (_bomb, "too large to be decoded"),
    "huge": (_huge_file, ".*bytes, where at most"),
    **{f"half a {kind}": (_truncated(kind), "(damaged|truncated)") for kind in ("PNG", "JPEG")},
    **{f"half a {kind}": (_truncated(kind), ".") for kind in ("WEBP", "GIF", "BMP", "TIFF")},
}


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.filterwarnings("default")  # as for users, whom a warning does not stop
def test_unreadable_files_are_refused_or_skipped(tmp_path: Path, kind: str, place: str) -> None:
    write, reason = UNREADABLE[kind]
    names = ["0.png", "1.png", "2.png"]
    bad = names[0 if place == "first" else -1]
    for name in names:
        (tmp_path / "all" / "a").mkdir(parents=True, exist_ok=True)
        path = tmp_path / "all" / "a" / name
        write(path) if name == bad else Image.fromarray(photograph(8, 8)).save(path)
    source = read(tmp_path / "all", labelled=True)
    form = source.format()
    assert form.shape == (3, 8, 8)
    with pytest.raises(DataError, match=f"1 of 3 images cannot be read:\n.*{bad}: {reason}") as e:
        list(source.samples(form))
    assert "--skip-unreadable" in str(e.value)
    source = read(tmp_path / "all", labelled=True, skip_unreadable=True)
    samples = source.samples(source.format())
    next(samples)
    assert (source.count, source.names) == (2, ["a", "a"])
    assert len(list(samples)) == 1
    assert source.skipped.unreadable_line.startswith(f"skipped 1 of 3 files: a/{bad} (")
    assert [Path(each).name for each in source.sources or ()] == [n for n in names if n != bad]
    if kind == "folder":
        return  # by itself it is taken for a folder of images
    alone = tmp_path / "alone"
    alone.mkdir()
    write(alone / "0.png")
    source = read(alone, labelled=False, skip_unreadable=True)
    with pytest.raises(DataError, match="1 of 1 images cannot be read"):
        list(source.samples(source.format()))


def test_other_files_are_ignored_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a" / "more").mkdir(parents=True)
    (tmp_path / "__MACOSX").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "a" / "photo.PNG")
    for name in ("a/notes.txt", "a/.DS_Store", "a/._photo.png", "Thumbs.db", "a/photo.CR2"):
        (tmp_path / name).write_bytes(b"no image")
    source = read(tmp_path, labelled=True)
    assert source.count == 1
    assert source.names == ["a"]
    assert source.skipped.ignored_line == (
        "ignored 4 files that are not images: Thumbs.db, a/more, a/notes.txt, a/photo.CR2"
    )
    assert source.skipped.unreadable_line == ""
    assert len(list(source.samples(source.format()))) == 1
    photo = tmp_path / "a" / "photo.PNG"
    source = read([photo, photo], ["x", "y"], labelled=True)
    assert source.names == ["x", "y"]
    assert len(list(source.samples(source.format()))) == 2
    with pytest.raises(DataError, match="2 image files but 1 labels"):
        read([photo, photo], ["x"], labelled=True)


HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(64)
AVIF = HEIC.replace(b"heic", b"avif")


def test_heic_and_avif_may_need_a_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "a.heic").write_bytes(HEIC)
    with pytest.raises(DataError, match="a HEIC image: convert it to JPEG, or run `pip install pi"):
        read_one(tmp_path / "a.heic")
    monkeypatch.setattr(features, "check", lambda name: False)
    (tmp_path / "a.avif").write_bytes(AVIF)
    with pytest.raises(DataError, match="an AVIF image: convert it to JPEG, or run `pip"):
        read_one(tmp_path / "a.avif")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_damaged_files_raise_nothing_but_data_errors(kind: str) -> None:
    buffer = io.BytesIO()
    Image.fromarray(photograph(20, 20)).save(buffer, format=kind)
    whole, random, formats = buffer.getvalue(), np.random.default_rng(0), user_formats()
    read_anyway = 0
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(int(random.integers(1, 6))):
            data[int(random.integers(0, len(data)))] = int(random.integers(0, 256))
        try:
            found = decode(bytes(data), "a", formats=formats, fit=(8, 8))
        except UnreadableImageError:
            continue
        assert found.shape == (3, 8, 8)
        read_anyway += 1
    assert read_anyway < 60
