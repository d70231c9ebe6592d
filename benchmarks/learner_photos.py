"""What a learner with default settings reaches on photographs, through the command line.

Run with `OMP_NUM_THREADS=1 python benchmarks/learner_photos.py FOLDER [--only CASE,...]`. FOLDER
has a folder per visit, `visit-*/CLASS/NAME.jpg`, and `test/CLASS/NAME.jpg`. With `cifar10` in its
place, 400 training images of each class of CIFAR-10 are learnt in five visits and tested on its
test set. Every visit is a process of its own; its CPU time includes start-up and encoding.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from remask import load_benchmark

CASES: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "96 pixels": ("--image-size", "96"),
    "memory 0": ("--memory", "0"),
    "ridge": ("--method", "ridge"),
    "no encoder": ("--encoder", "none"),
}
_REJECTED = 3
_CIFAR_IMAGES = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("photos", help="a folder with visit-* and test, or cifar10")
    parser.add_argument("--only", default=",".join(CASES), help="some of the cases")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos = cifar10(folder / "photos") if options.photos == "cifar10" else Path(options.photos)
        print("| case | accuracy | least held-out accuracy | rejected visits | CPU time | disk |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for number, case in enumerate(options.only.split(",")):
            print(f"| {case} | {learnt(photos, folder / str(number), CASES[case])} |", flush=True)


def learnt(photos: Path, folder: Path, arguments: Sequence[str]) -> str:
    """Learn all visits, and return one row of the table."""
    seconds, rejected, least = 0.0, 0, 100.0
    for visit in sorted(photos.glob("visit-*")):
        command = ["learn", str(folder), "--data", str(visit), "--name", visit.name, "--discard"]
        code, output, cpu = remask([*command, *arguments, "--json"])
        seconds += cpu
        if code == _REJECTED:
            rejected += 1
        elif code:
            raise SystemExit(f"{' '.join(command)} failed with exit code {code}")
        else:
            accuracies = json.loads(output)["accuracy"].values()
            least = min(least, sum(accuracies) / max(len(accuracies), 1))
    _, output, _ = remask(["evaluate", str(folder), "--data", str(photos / "test"), "--json"])
    accuracy = json.loads(output)["accuracy"]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    return f"{accuracy:.1f} % | {least:.1f} % | {rejected} | {seconds:.0f} s | {size:.1f} MB"


def remask(arguments: Sequence[str]) -> tuple[int, str, float]:
    """Run a command; returns its exit code, what it printed, and its CPU time in seconds."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "remask", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system
    return done.returncode, done.stdout, cpu - before.children_system


def cifar10(folder: Path) -> Path:
    """Write CIFAR-10 as photographs: two new classes per visit, and the whole test set."""
    data = load_benchmark("split-cifar10")
    counts: dict[int, int] = {}
    for label, image in zip(data.train_labels.tolist(), data.train_inputs, strict=True):
        counts[label] = counts.get(label, 0) + 1
        if counts[label] <= _CIFAR_IMAGES:
            place = folder / f"visit-{label // 2 + 1}" / data.class_names[label]
            _write(place / f"{counts[label]}.png", image.permute(1, 2, 0).numpy())
    for number, (label, image) in enumerate(
        zip(data.test_labels.tolist(), data.test_inputs, strict=True)
    ):
        place = folder / "test" / data.class_names[label]
        _write(place / f"{number}.png", image.permute(1, 2, 0).numpy())
    return folder


def _write(path: Path, pixels: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
