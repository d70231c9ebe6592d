"""What a learner can be given: folders, arrays, datasets; and errors for the rest."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from remask.data.readers import UnreadableImageWarning
from remask.learner import Learner, LearnerError
from tests.learner.samples import bits, blobs, create, taught


def write_folder(folder: Path, names: list[str], each: int = 12, **changes: Any) -> Path:
    """The blobs as image files, CLASS/NUMBER.png, colour if they have three channels."""
    size: tuple[int, int] | None = changes.pop("size", None)
    inputs, labels = blobs(names, each, **changes)
    for number, (image, name) in enumerate(zip(inputs, labels, strict=True)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(image.transpose(1, 2, 0).squeeze())
        if size is not None:
            picture = picture.resize(size, Image.Resampling.NEAREST)
        picture.save(folder / name / f"{number}.png")
    return folder


def test_a_folder_of_images_is_learnt_and_predicted(tmp_path: Path) -> None:
    photos = write_folder(tmp_path / "photos", ["owl", "yak"], shape=(3, 8, 8))
    learner = create(tmp_path / "a", epochs=20)
    visit = learner.learn(photos, name="week-1")
    assert visit.new_classes == ("owl", "yak")
    assert learner.preprocessing.input_shape == (3, 8, 8)
    assert learner.preprocessing.resize == "bilinear"
    assert learner.evaluate(str(photos)).accuracy > 90
    predicted = learner.predict(photos / "owl")
    assert [Path(str(each.source)).parent.name for each in predicted] == ["owl"] * 12
    image = photos / "owl" / Path(str(predicted[0].source)).name
    assert learner.predict(image).each == learner.predict([image]).each == predicted.each[:1]
    assert len(learner.predict(photos)) == 24


def test_images_of_any_size_and_colour_are_converted(tmp_path: Path) -> None:
    small = write_folder(tmp_path / "small", ["owl", "yak"], shape=(3, 8, 8))
    large = write_folder(tmp_path / "large", ["owl", "yak"], shape=(3, 8, 8), size=(300, 200))
    learner = create(tmp_path / "a", epochs=20)
    learner.learn(small, name="week-1")
    assert learner.evaluate(large).accuracy > 90
    grey = write_folder(tmp_path / "grey", ["owl", "yak"], shape=(1, 8, 8))
    learner = create(tmp_path / "grey-first")
    learner.learn(grey, name="week-1")
    assert learner.preprocessing.input_shape == (1, 8, 8)
    learner.learn(small, name="week-2")
    learner = create(tmp_path / "b", epochs=1)
    learner.learn(large, name="week-1")
    assert learner.preprocessing.input_shape == (3, 64, 64)
    learner = create(tmp_path / "c", image_size=(10, 12))
    learner.learn(small, name="week-1")
    assert learner.preprocessing.input_shape == (3, 10, 12)
    with pytest.raises(LearnerError, match="takes 3 channels of 10 x 12"):
        learner.predict(blobs(["owl"], shape=(3, 8, 8))[0])


@pytest.mark.slow
def test_embeddings_are_learnt_at_any_scale(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    centres, labels = random.normal(size=(6, 32)), random.integers(0, 6, 300)
    for number, (scale, shift) in enumerate([(1.0, 0.0), (1000.0, 5000.0), (1e-3, 1.0)]):
        inputs = scale * (centres[labels] + 0.3 * random.normal(size=(300, 32))) + shift
        learner = create(tmp_path / str(number), net="linear", lr=None, epochs=5)
        for classes in ((0, 1), (2, 3), (4, 5)):
            rows = np.isin(labels, classes)
            learner.learn(inputs[rows], labels[rows], name=str(classes))
        assert learner.evaluate(inputs, labels).accuracy > 85


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"data": np.zeros((4, 3, 6, 6), np.uint8)}, "takes 1 channels of 6 x 6 pixels, uint8"),
    ({"data": np.zeros((4, 1, 7, 6), np.uint8)}, r"got \[1, 7, 6\]"),
    ({"data": np.zeros((4, 6, 6), np.uint8), "labels": ["a"] * 3}, "4 inputs but 3 labels"),
    ({"data": np.zeros((4, 6, 6), np.uint8), "labels": ["a\n"] * 4}, "printable"),
    ({"data": np.zeros((4, 6, 6), np.uint8), "labels": None}, "needs `labels`"),
    ({"data": [1, 2, 3], "labels": None}, r"must give \(input, label\)"),
    ({"data": 7, "labels": None}, "must be a folder, an array"),
    ({"data": "/not/there", "labels": None}, "does not exist: expected a folder"),
]


def test_bad_arrays_are_refused_and_the_learner_stays_as_it_was(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"])
    before = bits(tmp_path / "a")
    for given, message in WRONG:
        with pytest.raises(LearnerError, match=message):
            learner.learn(**{"labels": ["cat"] * 4, **given}, name="second")
        assert bits(tmp_path / "a") == before
        assert learner.unfinished is None


def test_unreadable_files_are_skipped_and_a_warning_names_them(tmp_path: Path) -> None:
    photos = write_folder(tmp_path / "photos", ["owl", "yak"], shape=(3, 8, 8))
    broken = sorted((photos / "owl").iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:-9])
    line = rf"skipped 1 of 24 files: owl/{broken.name} \(truncated"
    learner, without = create(tmp_path / "a"), create(tmp_path / "b")
    with pytest.warns(UnreadableImageWarning, match=line) as caught:
        visit = learner.learn(photos, name="v", skip_unreadable=True)
    assert caught[0].filename == __file__
    assert learner.skipped is not None
    assert [each.source for each in learner.skipped.unreadable] == [f"owl/{broken.name}"]
    for check in (learner.predict, learner.evaluate):
        with pytest.warns(UnreadableImageWarning, match=line) as caught:
            check(photos, skip_unreadable=True)
        assert caught[0].filename == __file__
    broken.unlink()
    again = without.learn(photos, name="v")
    assert visit.fingerprint == again.fingerprint
    assert not without.skipped
    assert bits(tmp_path / "a") == bits(tmp_path / "b")


def test_folders_that_hold_no_classes_say_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "hollow" / "owl").mkdir(parents=True)
    learner = create(tmp_path / "a")
    for folder in ("empty", "hollow"):
        with pytest.raises(LearnerError, match=r"expected a folder per class|owl has no images"):
            learner.learn(tmp_path / folder, name="v")
    photos = write_folder(tmp_path / "photos", ["owl", "yak"], shape=(3, 8, 8))
    learner.learn(photos, name="v")
    unknown = write_folder(tmp_path / "more", ["emu", "gnu", "owl"], shape=(3, 8, 8))
    found = learner.evaluate(unknown)
    assert list(found.unknown_classes) == ["emu", "gnu"]
    assert list(found.counts) == ["owl"]


def test_a_learner_of_colour_images_uses_a_convolutional_net(tmp_path: Path) -> None:
    photos = write_folder(tmp_path / "photos", ["owl", "yak"], shape=(3, 8, 8))
    learner = create(tmp_path / "a", net="resnet18:2", augment=True, epochs=1)
    learner.learn(photos, name="week-1")
    predicted = learner.predict(photos)
    mean = learner.preprocessing.mean
    assert mean is not None
    assert 0.3 < mean[0] < 0.7
    again = Learner.open(tmp_path / "a")
    assert again.predict(photos) == predicted


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"])
    with pytest.raises(LearnerError, match=r"missing\.png does not exist: expected an image"):
        learner.predict(tmp_path / "missing.png")
    with pytest.raises(LearnerError, match=r"missing\.png.*No such file"):
        learner.predict([tmp_path / "missing.png", tmp_path / "other.png"])
