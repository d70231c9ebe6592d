"""Record what masks do to the logits of old classes, for the figure on the start page.

`python website/logits.py` trains on the embedded digits, with the settings of `remask demo`, and
writes `docs/assets/logits-data.js`, which the figure plays, and `docs/figures/logits.svg`, which
replaces it where scripts are disabled.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch

from remask import Benchmark, TrialStack, load_benchmark
from remask.experiments.configs import trial_configs

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "assets" / "logits-data.js"
PICTURE = ROOT / "docs" / "figures" / "logits.svg"
EVERY = 5
"""Steps between two frames."""
METHODS = {"sgd": "no memory", "er": "20 remembered samples"}
MASKS = {"none": None, "-1": -1.0, "-inf": -math.inf}


def record() -> dict[str, Any]:
    """Train all six trials; a frame has a logit per class, and the accuracy on classes so far.

    The logit of a class is its mean over the test images of that class.
    """
    digits = load_benchmark("split-digits")
    frames: dict[str, list[list[float]]] = {}
    tasks_of_frames: list[int] = []
    for method in METHODS:
        configs = [
            config
            for mask in MASKS.values()
            for config in trial_configs(
                benchmark="split-digits", method=method, masks=[mask], seeds=[0]
            )
        ]
        stack = TrialStack(configs, digits)
        seen = [_frame(stack, digits, 0)]
        tasks_of_frames = [0]
        for number, task in enumerate(stack.tasks):
            for _ in stack.learn_steps(task):
                if stack.steps_done % EVERY == 0:
                    seen.append(_frame(stack, digits, number))
                    tasks_of_frames.append(number)
        for place, mask in enumerate(MASKS):
            frames[f"{method} {mask}"] = [frame[place] for frame in seen]
    return {"every": EVERY, "tasks": digits.tasks, "task": tasks_of_frames, "frames": frames}


def _frame(stack: TrialStack, digits: Benchmark, task: int) -> list[list[float]]:
    """For each trial: the logit of every class, rounded, and the accuracy in percent."""
    labels = digits.test_labels
    scores = stack.scores(digits.test_inputs * digits.scale, task)
    of_class = [scores[:, labels == number, number].mean(1) for number in range(scores.shape[2])]
    known = torch.isin(
        labels, torch.tensor([c for classes in digits.tasks[: task + 1] for c in classes])
    )
    right = (scores.argmax(2) == labels)[:, known].double().mean(1) * 100
    rows = torch.cat([torch.stack(of_class, 1), right.unsqueeze(1)], 1).tolist()
    return [[round(number, 1) for number in row] for row in rows]


def script(recorded: dict[str, Any]) -> str:
    """The record as a script: a page that is opened from a folder may load no JSON."""
    return f"// Recorded by website/logits.py.\nwindow.logits = {json.dumps(recorded)};\n"


def picture(recorded: dict[str, Any]) -> str:
    """Two charts of the logits over time, without a mask and with m = -inf, as SVG."""
    colours = ("#0f766e", "#2563eb", "#9333ea", "#c2410c", "#b91c1c")
    width, height, left, top = 300, 180, 40, 46
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 262"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="720" height="262" fill="#fff"/>',
    ]
    for panel, (mask, title) in enumerate(
        (("none", "without a mask"), ("-1", "with a mask, m = -1"))
    ):
        frames = recorded["frames"][f"sgd {mask}"]
        at = left + panel * (width + 40)

        def point(frame: int, logit: float, at: int = at, last: int = len(frames) - 1) -> str:
            return f"{at + width * frame / last:.1f},{top + height * (13 - logit) / 17:.1f}"

        parts.append(
            f'<text x="{at}" y="{top - 26}" font-size="15" font-weight="bold">{title}</text>'
        )
        for logit in (0, 5, 10):
            x, y = point(0, logit).split(",")
            parts.append(f'<path d="M{x},{y}h{width}" stroke="#ddd"/>')
            parts.append(f'<text x="{at - 6}" y="{float(y) + 4}" text-anchor="end">{logit}</text>')
        for task, classes in enumerate(recorded["tasks"]):
            x = point(recorded["task"].index(task), 13).split(",")[0]
            names = " and ".join(map(str, classes))
            parts.append(f'<path d="M{x},{top}v{height}" stroke="#ddd"/>')
            parts.append(
                f'<text x="{float(x) + 4}" y="{top - 6}" fill="{colours[task]}">{names}</text>'
            )
            for number in classes:
                line = " ".join(point(n, frame[number]) for n, frame in enumerate(frames))
                parts.append(f'<polyline points="{line}" fill="none" stroke="{colours[task]}"/>')
    parts.append(
        '<text x="40" y="252">five tasks of two digits, one after the other, no memory</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    found = record()
    DATA.write_text(script(found), "utf-8")
    PICTURE.write_text(picture(found), "utf-8")
