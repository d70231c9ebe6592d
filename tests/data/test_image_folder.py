"""One's own data: a folder of images, a folder per class."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from remask.data.readers import UnreadableImageWarning
from remask.data.user_data import image_folder
from remask.errors import DataError

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    image_module = pytest.importorskip("PIL.Image")

    def make(
        name: str, colour: Any = (9, 8, 7), mode: str = "RGB", size: tuple[int, int] = (4, 6)
    ) -> None:
        """Write an image of (height, width) below tmp_path."""
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        kind = "PNG" if path.suffix.lower() == ".png" else "JPEG"
        image_module.new(mode, size[::-1], colour).save(buffer, format=kind)
        path.write_bytes(buffer.getvalue())

    return make


def test_a_folder_of_images_numbers_its_classes_by_name(write: Write, tmp_path: Path) -> None:
    for number, name in enumerate(["bee", "ant", "cat"]):
        for image in range(5):
            write(f"all/{name}/{image}.png", (number, image, 0))
    (tmp_path / "all" / "bee" / "notes.txt").write_text("not an image")
    (tmp_path / "all" / ".hidden").mkdir()
    with pytest.warns(UnreadableImageWarning, match="ignored 1 file that is not .*: bee/notes.txt"):
        benchmark = image_folder(tmp_path / "all", tasks=[["cat", "ant"], [1]])
    assert benchmark.tasks == ((2, 0), (1,))
    assert benchmark.class_names == ("ant", "bee", "cat")
    assert benchmark.input_shape == (3, 4, 6)
    number_of = torch.tensor([1, 0, 2])  # ant, bee, cat were written as 1, 0, 2
    for inputs, labels in (
        (benchmark.train_inputs, benchmark.train_labels),
        (benchmark.test_inputs, benchmark.test_labels),
    ):
        assert torch.equal(inputs[:, 0, 0, 0].long(), number_of[labels])
    assert len(benchmark.train_labels) == 12


def test_a_test_folder_must_have_the_same_classes(write: Write, tmp_path: Path) -> None:
    for part in ("train", "test"):
        write(f"{part}/a/0.JPG", 50, mode="L")
        write(f"{part}/b/0.jpeg")
    benchmark = image_folder(tmp_path / "train", test=tmp_path / "test", tasks=2)
    assert benchmark.input_shape == (3, 4, 6)
    assert torch.equal(benchmark.train_inputs, benchmark.test_inputs)
    grey = image_folder(tmp_path / "train", test=tmp_path / "test", tasks=2, channels=1)
    assert grey.input_shape == (1, 4, 6)
    cafe = os.fsdecode(b"caf\xe9")  # not valid Unicode
    for part in ("train", "test"):
        write(f"{part}/{cafe}/0.png")
    names = image_folder(tmp_path / "train", test=tmp_path / "test", tasks=2).class_names
    assert names == ("a", "b", r"caf\udce9")
    write("test/c/0.png")
    with pytest.raises(DataError, match="the same classes; only one of them has c"):
        image_folder(tmp_path / "train", test=tmp_path / "test", tasks=2)


def test_images_of_mixed_sizes_are_refused_unless_resized(write: Write, tmp_path: Path) -> None:
    write("all/a/0.png")
    write("all/a/1.png", size=(8, 8))
    write("all/b/0.png")
    write("all/b/1.png")
    with pytest.raises(
        DataError,
        match=r"a/1\.png has 8 x 8 pixels, earlier ones 4 x 6\. Pass size=\(height, width\)",
    ):
        image_folder(tmp_path / "all", tasks=2)
    assert image_folder(tmp_path / "all", tasks=2, size=(3, 5)).input_shape == (3, 3, 5)
    resized = image_folder(tmp_path / "all", tasks=2, size=7)
    assert resized.input_shape == (3, 7, 7)
    assert (resized.train_inputs == torch.tensor([9, 8, 7]).view(3, 1, 1)).all()


def test_wrong_folders_are_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere does not exist"):
        image_folder(tmp_path / "nowhere", tasks=1)
    (tmp_path / "all").mkdir()
    with pytest.raises(DataError, match=r"no folders: expected a folder per class"):
        image_folder(tmp_path / "all", tasks=1)
    write("all/a/0.png")
    write("all/a/1.png")
    with pytest.raises(DataError, match="need at least 2 classes"):
        image_folder(tmp_path / "all", tasks=1)
    (tmp_path / "all" / "b").mkdir()
    with pytest.raises(DataError, match=r"all/b has no images: expected files that end in \.png"):
        image_folder(tmp_path / "all", tasks=1)
    (tmp_path / "all" / "b" / "c").mkdir()
    with pytest.raises(DataError, match=r"all/b has no images: are its folders the classes\? Then"):
        image_folder(tmp_path / "all", tasks=1)
    with pytest.raises(DataError, match="channels must be 1 or 3"):
        image_folder(tmp_path / "all", tasks=1, channels=2)


def test_unreadable_images_are_all_named_in_one_error_or_left_out_if_asked_for(
    write: Write, tmp_path: Path
) -> None:
    for part in ("all", "test"):
        for number in range(14):
            write(f"{part}/{'abc'[number % 3]}/{number}.png", (number, 0, 0))
    spoilt = [f"{'abc'[number % 3]}/{number}.png" for number in range(11)]
    for name in spoilt:
        (tmp_path / "all" / name).write_bytes(b"\x89PNG, but not for long")
    (tmp_path / "test/c/2.png").unlink()
    (tmp_path / "test/c/2.png").mkdir()
    train, test = str(tmp_path / "all"), str(tmp_path / "test")
    with pytest.raises(DataError, match=r"^11 of 14 images cannot be read:\n") as refused:
        image_folder(train, test=test, tasks=3)
    message = str(refused.value)
    assert sum(name in message for name in spoilt) == 10
    assert "and 1 more" in message
    assert "--skip-unreadable\n(in Python, skip_unreadable=True)" in message
    with pytest.warns(UnreadableImageWarning) as caught:
        benchmark = image_folder(train, test=test, tasks=3, skip_unreadable=True)
    (warning,) = caught
    assert warning.filename == __file__  # where a user would look
    first, second = str(warning.message).split("\n")
    assert first.startswith("skipped 11 of 14 files: a/0.png (")
    assert all(name in first for name in spoilt)
    assert second == "skipped 1 of 14 files: c/2.png (not a regular file)"
    # By class, then by name as text: 12 of class a; 13 of b; 11 of c.
    assert benchmark.train_inputs[:, 0, 0, 0].tolist() == [12, 13, 11]
    assert len(benchmark.test_labels) == 13


def test_a_class_without_a_readable_image_is_an_error(write: Write, tmp_path: Path) -> None:
    for name in ("a/0", "a/1", "b/0", "b/1"):
        write(f"all/{name}.png")
    for name in ("b/0", "b/1"):
        (tmp_path / "all" / f"{name}.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"no image of class b can be read: skipped 2 of 4 files"):
        image_folder(tmp_path / "all", tasks=1, skip_unreadable=True)
