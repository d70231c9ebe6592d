"""Results as tables for the terminal, for notebooks and for documents."""

import html
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from io import StringIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from remask.errors import printable
from remask.reports.measures import (
    FEWEST_TRIALS,
    LEVEL,
    MEASURES,
    SETTINGS,
    VALIDATION_MEASURES,
    by_seed,
    t_test,
)
from remask.store.cells import Cell, Spread, grouped, write_spread

_DATA = ("benchmark", "tasks", "class_order", "limit", "blur", "share", "validation")
"""The settings that determine what there is to learn."""
_TESTED = [(title if "A_T" in title else "F_T", name) for name, title in MEASURES.items()]
_VALIDATED = [(f"test\n{heading}", name) for heading, name in _TESTED] + [
    (title.replace(" ", "\n", 1), name) for name, title in VALIDATION_MEASURES.items()
]
_CURVES = {
    "A_T": "class_il_A_T",
    "min-ACC": "class_il_min_ACC",
    "WC-ACC": "class_il_WC_ACC",
    "drop after a switch": "class_il_switch_drop",
}
CURVES_NOTE = (
    "Class-IL. min-ACC, WC-ACC and the drop are measured within tasks, on the first test samples "
    "of each class; the drop is that of old tasks in the first tenth of a new one."
)
_RULE = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
_LONGEST_RICH_TABLE = 500  # rows
_WIDEST = 10_000  # characters


class PlainTable(Table):
    """A rich Table that is also readable as text, `str(table)`, in a notebook and as Markdown."""

    def __init__(
        self,
        columns: Sequence[str] = (),
        rows: Iterable[Sequence[str | Text]] = (),
        *,
        left: Sequence[str] = (),
        wrap: bool = False,
    ) -> None:
        """Columns align to the right, except for those in `left`."""
        super().__init__(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            header_style="bold",
            title_justify="left",
            title_style="bold",
        )
        for name in columns:
            heading = Text(printable(name))
            self.add_column(heading, justify="left" if name in left else "right", no_wrap=not wrap)
        for row in rows:
            # As Text: a name that looks like markup is still a name.
            self.add_row(*(Text(printable(c)) if isinstance(c, str) else c for c in row))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render a long table as plain text: rich needs 0.3 ms per row.

        Where the terminal is too narrow, it wraps the lines: rich would cut the numbers.
        """
        if self.row_count <= _LONGEST_RICH_TABLE:
            if all(column.no_wrap for column in self.columns):
                wide = options.update(max_width=_WIDEST)
                options = options.update(max_width=self.__rich_measure__(console, wide).maximum)
            yield from super().__rich_console__(console, options)
            return
        heads, *rows = self._texts()
        lines = [[head.replace("\n", " ") for head in heads], *rows]
        columns = []
        for column, texts in zip(self.columns, zip(*lines, strict=True), strict=True):
            width = max(map(cell_len, texts))
            pads = [" " * (width - cell_len(text)) for text in texts]
            pairs = zip(pads, texts, strict=True)
            right = column.justify == "right"
            columns.append([pad + text if right else text + pad for pad, text in pairs])
        head, *body = [f" {'   '.join(line)}".rstrip() for line in zip(*columns, strict=True)]
        rule = f" {_RULE * (max(map(cell_len, [head, *body])) - 1)}"
        title = [_text(self.title)] if self.title else []
        yield Segment("\n".join([*title, "", head, rule, *body, "", ""]))

    def __str__(self) -> str:
        """The table as rich renders it on a wide console."""
        file = StringIO()
        Console(file=file, width=_WIDEST, color_system=None, force_jupyter=False).print(self)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())

    def markdown(self) -> str:
        """The table for a document."""
        rules = ["---" if column.justify == "left" else "---:" for column in self.columns]
        heads, *rows = self._texts()
        return "".join(f"| {' | '.join(line)} |\n" for line in (heads, rules, *rows))

    def _repr_html_(self) -> str:
        def row(tag: str, texts: Iterable[str]) -> str:
            return f"<tr>{''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in texts)}</tr>"

        title = f"<caption>{html.escape(_text(self.title))}</caption>" if self.title else ""
        heads, *rows = self._texts()
        body = "".join(row("td", texts) for texts in rows)
        return f"<table>{title}<thead>{row('th', heads)}</thead><tbody>{body}</tbody></table>"

    def _texts(self) -> list[tuple[str, ...]]:
        """The headings, and the rows."""
        columns = [[column.header, *column.cells] for column in self.columns]
        return list(zip(*[map(_text, column) for column in columns], strict=True))


def _text(cell: object) -> str:
    return "" if cell is None else printable(str(cell))


def shown_measures(cells: Sequence[Cell]) -> dict[str, str]:
    """The measures in tables of these cells, with titles that distinguish test from validation."""
    if not any(cell.config.validation for cell in cells):
        return MEASURES
    return {**{name: f"test {title}" for name, title in MEASURES.items()}, **VALIDATION_MEASURES}


def results_table(cells: Sequence[Cell]) -> PlainTable:
    """Mean and standard deviation of A_T and F_T, a row per cell.

    The title has what all cells share. If any cell held training data out, the headings name the
    columns of validation and of the test set.
    """
    columns = {
        "benchmark": [cell.config.benchmark for cell in cells],
        "method": [cell.label for cell in cells],
        "buffer": [str(cell.config.buffer or "-") for cell in cells],
        "trials": [_write_trials(cell) for cell in cells],
    }
    shared = []
    for name, in_common in (("benchmark", "{}"), ("buffer", "buffer {}"), ("trials", "trials: {}")):
        # Exceptions ("9, 1 diverged") stay in a column.
        if len({*columns[name]}) == 1 and "," not in columns[name][0]:
            shared.append(in_common.format(columns.pop(name)[0]))
    shares = {cell.config.validation for cell in cells}
    if any(shares) and len(shares) == 1:
        shared.append(f"held out for validation: {100 * shares.pop():g} %")
    measures = _VALIDATED if any(cell.config.validation for cell in cells) else _TESTED
    texts = [[write_aligned(cell.spreads[name]) for cell in cells] for _, name in measures]
    headings = [*columns, *(heading for heading, _ in measures)]
    own = [*columns.values(), *texts]
    table = PlainTable(headings, zip(*own, strict=True), left=("benchmark", "method"))
    table.title = Text(printable(", ".join(shared)), style="bold")
    if measures is _VALIDATED:  # too wide for some terminals: fold it, rather than cut figures off
        for column, heading, values in zip(table.columns, headings, own, strict=True):
            column.min_width = max(map(len, [*heading.splitlines(), *values]))
    return table


def _write_trials(cell: Cell) -> str:
    kinds = len(cell.hardware)
    notes = [f"on {kinds} kinds of hardware"] if kinds > 1 else []
    return ", ".join([str(cell.trials), *cell.lost, *notes])


def curve_table(cells: Sequence[Cell]) -> PlainTable:
    """Metrics that were measured within tasks, a row per cell."""
    rows = [
        [
            *(cell.label, str(cell.config.buffer or "-"), str(cell.trials)),
            *(write_aligned(cell.spreads[measure]) for measure in _CURVES.values()),
        ]
        for cell in cells
    ]
    return PlainTable(["method", "buffer", "trials", *_CURVES], rows, left=("method",))


def write_aligned(spread: Spread) -> str:
    """A mean and deviation so that the means in a column line up for most deviations."""
    return write_spread(spread, alone="     -")


def masks_chosen(cells: Sequence[Cell]) -> list[str]:
    """The masks that the trials of each cell with the mask "auto" chose after each task."""
    lines = []
    for cell in cells:
        by_task = zip(*(record.choices for record in cell.finished), strict=True)
        counts = [Counter(choice.chosen for choice in made).most_common() for made in by_task]
        if counts:
            masks = (", ".join(f"{name} ({times})" for name, times in made) for made in counts)
            where = f"{cell.label}, {cell.config.benchmark}, buffer {cell.config.buffer}"
            lines.append(f"masks that {where} chose after each task: {' | '.join(masks)}")
    return lines


def by_data(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells with the same training data, by the settings in which the data differ."""
    groups = grouped(cells, lambda cell: tuple(getattr(cell.config, name) for name in _DATA))
    differing = [at for at, values in enumerate(zip(*groups, strict=True)) if len({*values}) > 1]
    return {
        ", ".join(f"{_DATA[at]}={key[at]}" for at in differing): group
        for key, group in groups.items()
    }


def chosen_by_validation(cells: Sequence[Cell]) -> tuple[str, list[Cell], list[Cell]]:
    """The measure of validation, the cells that have it, and the best of them."""
    for setting in SETTINGS:
        measure = f"validation_{setting}_A_T"
        if known := [cell for cell in cells if not math.isnan(cell.spreads[measure].mean)]:
            highest = max(cell.spreads[measure].mean for cell in known)
            best = [cell for cell in known if math.isclose(cell.spreads[measure].mean, highest)]
            return measure, known, best
    return "", [], []


def best_by_validation(cells: Sequence[Cell]) -> list[str]:
    """Describe the best cell by validation and its test accuracy, a line per kind of data.

    Cells that learnt from different data, tasks or shares are not comparable. Empty if no cell
    held data out.
    """
    groups = by_data([cell for cell in cells if cell.config.validation])
    return [
        _described(group, f" on {data}" if len(groups) > 1 else "")
        for data, group in groups.items()
    ]


def _described(cells: Sequence[Cell], where: str) -> str:
    measure, known, best = chosen_by_validation(cells)
    if len(cells) == 1:
        return f"nothing to choose{where}: there is only one cell."
    if not best:
        return f"nothing to choose{where}: no trial has finished."
    several_buffers = len({cell.config.buffer for cell in cells}) > 1
    chosen = []
    for cell in best:
        name = f"{cell.label}, buffer {cell.config.buffer}" if several_buffers else cell.label
        held_out = write_spread(cell.spreads[measure])
        test = write_spread(cell.spreads[measure.removeprefix("validation_")])
        trials = ", ".join([f"n={cell.trials}", *cell.lost])
        chosen.append(f"{name} ({VALIDATION_MEASURES[measure]} {held_out}, {trials}); test: {test}")
    tied = "tied as " if len(best) > 1 else ""
    sentences = [f"{tied}best by validation{where}: {' | '.join(chosen)}."]
    if others := [cell for cell in known if cell not in best]:
        sentences.append(_reliability(best[0], others, measure))
    if len(cells) > len(known):
        sentences.append(f"Cells without a finished trial: {len(cells) - len(known)}.")
    return " ".join(sentences)


def _reliability(best: Cell, others: Sequence[Cell], measure: str) -> str:
    values = by_seed(measure, best)
    made = [test for cell in others if (test := t_test(values, by_seed(measure, cell)))]
    if not made:
        return f"Fewer than {FEWEST_TRIALS} trials per cell: too few for a test."
    alike = sum(test.p_different >= LEVEL for test in made)
    few = len(others) - len(made)
    at = f"(t-test at {100 * LEVEL:g} %)"
    if not alike and not few:
        return f"It differs significantly from every other cell {at}."
    untested = f"; with too few trials for a test: {few}" if few else ""
    return (
        f"Other cells without a significant difference from it {at}: "
        f"{alike} of {len(others)}{untested}."
    )
