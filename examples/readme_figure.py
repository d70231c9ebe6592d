"""The README's figure: how much is left of the first task while four more are learnt.

    python examples/readme_figure.py docs/figures/first-task.svg

runs trials of `remask demo` (in seconds; they are stored, and not run twice) and draws their means.
The SVG has no background, and its colours can be read on white and on black.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import remask

TRIALS = 10
PAIRS = (("er", -float("inf")), ("derpp", -1.0))
WIDTH, HEIGHT = 420, 250  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 44, 162, 34, 40  # what is left around its axes
LOWEST = 40.0
INK, WITHOUT, WITH = "#7d8590", "#d9730d", "#2f81f7"


def accuracy_on_the_first_task(results: remask.Results) -> list[float]:
    """Class-IL, after each task, in percent: the mean over trials."""
    matrices = [record.class_il for record in results]
    return [
        sum(matrix[task][0] for matrix in matrices) / len(matrices)
        for task in range(len(matrices[0]))
    ]


def curves() -> list[tuple[str, list[float], str, list[float]]]:
    """For each pair of systems: the names and the accuracies, without and with a mask."""
    found = []
    for method, mask in PAIRS:
        plain, masked = (
            remask.run("split-digits", method, mask=m, trials=TRIALS) for m in (None, mask)
        )
        found.append(
            (
                plain.cells()[0].label,
                accuracy_on_the_first_task(plain),
                masked.cells()[0].label,
                accuracy_on_the_first_task(masked),
            )
        )
    return found


def place(task: int, percent: float) -> tuple[float, float]:
    """Where a point is in its panel."""
    across = LEFT + (WIDTH - LEFT - RIGHT) * task / 4
    down = TOP + (HEIGHT - TOP - BOTTOM) * (100 - percent) / (100 - LOWEST)
    return round(across, 1), round(down, 1)


def text(x: float, y: float, words: str, colour: str = INK, **more: str) -> str:
    """A text element."""
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x}" y="{y}" fill="{colour}"{attributes}>{words}</text>'


def curve(name: str, accuracy: Sequence[float], colour: str) -> list[str]:
    """A line with its points, its name and where it ends."""
    points = [place(task, percent) for task, percent in enumerate(accuracy)]
    x, y = points[-1]
    return [
        f'<polyline points="{" ".join(f"{a},{b}" for a, b in points)}" fill="none" '
        f'stroke="{colour}" stroke-width="2.5" stroke-linejoin="round"/>',
        *(f'<circle cx="{a}" cy="{b}" r="3.5" fill="{colour}"/>' for a, b in points),
        text(x + 9, y + 5, f"{name} {accuracy[-1]:.0f} %", colour, font_weight="600"),
    ]


def panel(plain: str, without: list[float], masked: str, with_mask: list[float]) -> list[str]:
    """Axes and two curves."""
    drawn = []
    for percent in (40, 60, 80, 100):
        (x, y), (end, _) = place(0, percent), place(4, percent)
        drawn.append(f'<path d="M{x} {y}H{end}" stroke="{INK}" stroke-opacity="0.3"/>')
        drawn.append(text(x - 8, y + 4, str(percent), text_anchor="end"))
    for task in range(5):
        x, y = place(task, LOWEST)
        drawn.append(text(x, y + 18, str(task + 1), text_anchor="middle"))
    middle, bottom = place(2, LOWEST)
    drawn.append(text(middle, bottom + 35, "tasks learnt", text_anchor="middle"))
    return [*drawn, *curve(plain, without, WITHOUT), *curve(masked, with_mask, WITH)]


def draw(pairs: list[tuple[str, list[float], str, list[float]]]) -> str:
    """The whole figure; its description has the numbers."""
    numbers = "; ".join(
        f"{name}: {' '.join(f'{percent:.1f}' for percent in accuracy)}"
        for plain, without, masked, with_mask in pairs
        for name, accuracy in ((plain, without), (masked, with_mask))
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(pairs)} {HEIGHT}" '
        f'width="{WIDTH * len(pairs)}" height="{HEIGHT}" role="img" font-size="13" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        "<title>Accuracy on the first task after each of five tasks</title>",
        f"<desc>{numbers}</desc>",
        text(12, 16, "accuracy on the first task's digits, in percent"),
    ]
    for number, pair in enumerate(pairs):
        lines += [f'<g transform="translate({number * WIDTH} 0)">', *panel(*pair), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.parse_args().target.write_text(draw(curves()), "utf-8")
