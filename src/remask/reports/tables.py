"""Tables for the terminal, as text, and as HTML."""

import html
import io
import math
from collections.abc import Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from remask.console import PlainConsole
from remask.printable import printable
from remask.results import Cell, Spread

_TESTED = (
    ("Class-IL A_T", "class_il_A_T"),
    ("F_T", "class_il_F_T"),
    ("Task-IL A_T", "task_il_A_T"),
    ("F_T", "task_il_F_T"),
)
_VALIDATED = (
    *((f"test\n{heading}", measure) for heading, measure in _TESTED),
    ("validation\nClass-IL A_T", "validation_class_il_A_T"),
    ("validation\nTask-IL A_T", "validation_task_il_A_T"),
)
_WIDER_THAN_ANY_TABLE = 10_000
_LONGEST_RICH_TABLE = 500  # rows


class PlainTable(Table):
    """A rich Table that is one also as text, `str(table)`, and in a notebook."""

    def __init__(self) -> None:
        super().__init__(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            header_style="bold",
            title_justify="left",
            title_style="bold",
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render a long table as plain lines: rich needs a millisecond per row."""
        if self.row_count <= _LONGEST_RICH_TABLE:
            yield from super().__rich_console__(console, options)
            return
        head, body = self._lines()
        yield Segment("\n".join(head) + "\n", Style(bold=True))
        yield Segment("\n".join(body) + "\n")

    def _lines(self) -> tuple[list[str], list[str]]:
        """The title and the headings, and the rows, as rich lays them out on a wide console."""
        heads = [_text(column.header).split("\n") for column in self.columns]
        depth = max(map(len, heads))
        columns = []
        for column, head in zip(self.columns, heads, strict=True):
            empty = [""] * (depth - len(head))
            texts = [*empty, *head, *(printable(_text(cell)) for cell in column.cells)]
            width = max(map(cell_len, texts))
            padding = [" " * (width - cell_len(text)) for text in texts]
            if column.justify == "right":
                columns.append([f"{pad}{text}" for pad, text in zip(padding, texts, strict=True)])
            else:
                columns.append([f"{text}{pad}" for pad, text in zip(padding, texts, strict=True)])
        lines = [f" {'   '.join(parts)} " for parts in zip(*columns, strict=True)]
        rule = "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * (cell_len(lines[0]) - 2)
        title = [_text(self.title)] if self.title else []
        return [*title, "", *lines[:depth], f" {rule} "], [*lines[depth:], ""]

    def __str__(self) -> str:
        console = PlainConsole(
            file=io.StringIO(), width=_WIDER_THAN_ANY_TABLE, force_jupyter=False, color_system=None
        )
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def _repr_html_(self) -> str:
        return table_html(
            _text(self.title),
            [_text(column.header) for column in self.columns],
            zip(*[map(_text, column.cells) for column in self.columns], strict=True),
        )


def table_html(title: str, columns: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A plain table, everything in it escaped."""

    def row(tag: str, texts: Iterable[str]) -> str:
        cells = "".join(f"<{tag}>{html.escape(printable(text))}</{tag}>" for text in texts)
        return f"<tr>{cells}</tr>"

    caption = f"<caption>{html.escape(printable(title))}</caption>" if title else ""
    body = "".join(row("td", texts) for texts in rows)
    return f"<table>{caption}<thead>{row('th', columns)}</thead><tbody>{body}</tbody></table>"


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)


def results_table(cells: Sequence[Cell]) -> PlainTable:
    """Mean and standard deviation of A_T and F_T, a row per cell.

    What all cells have in common stands in the title instead of in a column. Where a cell held
    training data out, the headings say which columns are of it and which of the test set.
    """
    table = PlainTable()
    columns: list[tuple[str, list[str]]] = []
    shared = []
    for name, write, in_common in (
        ("benchmark", lambda cell: cell.config.benchmark, "{}"),
        ("method", lambda cell: cell.label, ""),
        ("buffer", lambda cell: str(cell.config.buffer or "-"), "buffer {}"),
        ("trials", _write_trials, "trials: {}"),
    ):
        texts = [write(cell) for cell in cells]
        values = set(texts)
        # What is out of the ordinary ("9, 1 diverged") stays in a column of its own.
        if in_common and len(values) == 1 and not any("," in value for value in values):
            shared.append(in_common.format(values.pop()))
        else:
            columns.append((name, texts))
    validated = any(cell.has_validation for cell in cells)
    shares = {cell.config.validation for cell in cells}
    if validated and len(shares) == 1:
        shared.append(f"held out for validation: {100 * shares.pop():g} %")
    table.title = Text(printable(", ".join(shared)), style="bold")
    measures = _VALIDATED if validated else _TESTED
    columns += [
        (heading, [write_spread(cell.spreads[measure]) for cell in cells])
        for heading, measure in measures
    ]
    for name, texts in columns:
        left = name in ("benchmark", "method")
        # So many columns do not fit every terminal, and a figure that is cut is worse than a fold.
        least = max(map(len, [*name.splitlines(), *texts])) if validated else None
        table.add_column(name, justify="left" if left else "right", no_wrap=True, min_width=least)
    for row in zip(*[texts for _, texts in columns], strict=True):
        # As Text: a name that looks like markup is a name all the same.
        table.add_row(*[Text(printable(text)) for text in row])
    return table


_OF_CURVES = {
    "A_T": "class_il_A_T",
    "min-ACC": "class_il_min_ACC",
    "WC-ACC": "class_il_WC_ACC",
    "drop after a switch": "class_il_switch_drop",
}
CURVES_NOTE = (
    "Class-IL. min-ACC, WC-ACC and the drop are measured within tasks, on the first test samples "
    "of each class; the drop is that of old tasks in the first tenth of a new one."
)


def curve_table(cells: Sequence[Cell]) -> PlainTable:
    """What was measured within tasks, a row per cell."""
    table = PlainTable()
    for name in ("method", "buffer", "trials", *_OF_CURVES):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for row in _curve_rows(cells):
        table.add_row(*[Text(printable(text)) for text in row])
    return table


def curve_markdown(cells: Sequence[Cell]) -> str:
    """The same for a document."""
    names = ["method", "buffer", "trials", *_OF_CURVES]
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *_curve_rows(cells)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _curve_rows(cells: Sequence[Cell]) -> list[list[str]]:
    return [
        [
            *(cell.label, str(cell.config.buffer or "-"), str(cell.trials)),
            *(write_spread(cell.spreads[measure]) for measure in _OF_CURVES.values()),
        ]
        for cell in cells
    ]


def write_spread(spread: Spread) -> str:
    """`85.29 ±2.05`; a dash where nothing was measured, and for the spread of one trial."""
    if math.isnan(spread.mean):
        return "-"
    # As wide as most spreads are, so that the means of a column stay in line.
    return f"{spread.mean:.2f} " + (f"±{spread.std:.2f}" if spread.trials > 1 else "    -")


def _write_trials(cell: Cell) -> str:
    notes = [
        f"{count} {what}"
        for count, what in ((cell.diverged, "diverged"), (cell.failed, "failed"))
        if count
    ]
    if len(cell.hardware) > 1:
        notes.append(f"on {len(cell.hardware)} kinds of hardware")
    return ", ".join([str(cell.trials), *notes])
