"""Tables for the terminal, for notebooks and for documents."""

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
from remask.errors import printable
from remask.store import Cell, Spread

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
_WIDER_THAN_ANY_TABLE = 10_000
_LONGEST_RICH_TABLE = 500  # rows


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
            cells = (Text(printable(cell)) if isinstance(cell, str) else cell for cell in row)
            self.add_row(*cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render a long table as plain lines: rich needs a millisecond per row."""
        if self.row_count <= _LONGEST_RICH_TABLE:
            yield from super().__rich_console__(console, options)
            return
        head, body = self._lines()
        yield Segment("\n".join(head) + "\n", Style(bold=True))
        yield Segment("\n".join(body) + "\n")

    def _lines(self) -> tuple[list[str], list[str]]:
        """The title with the headings, and the rows, as rich lays them out on a wide console."""
        heads = [_text(column.header).split("\n") for column in self.columns]
        depth = max(map(len, heads))
        columns = []
        for column, head in zip(self.columns, heads, strict=True):
            texts = [*[""] * (depth - len(head)), *head, *map(_text, column.cells)]
            width = max(map(cell_len, texts))
            right = column.justify == "right"
            padding = [" " * (width - cell_len(text)) for text in texts]
            pairs = zip(padding, texts, strict=True)
            columns.append([pad + text if right else text + pad for pad, text in pairs])
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

    def markdown(self) -> str:
        """The table for a document."""
        rules = ["---" if column.justify == "left" else "---:" for column in self.columns]
        lines = [[_text(column.header) for column in self.columns], rules, *self._rows_of_text()]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def _repr_html_(self) -> str:
        heads = [html.escape(_text(column.header)) for column in self.columns]
        rows = [map(html.escape, row) for row in self._rows_of_text()]
        return table_html(html.escape(_text(self.title)), heads, rows)

    def _rows_of_text(self) -> list[list[str]]:
        columns = [map(_text, column.cells) for column in self.columns]
        return [list(row) for row in zip(*columns, strict=True)]


def table_html(caption: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose texts are HTML already."""

    def row(tag: str, texts: Iterable[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"

    head = f"<caption>{caption}</caption>" * bool(caption)
    body = "".join(row("td", texts) for texts in rows)
    return f"<table>{head}<thead>{row('th', columns)}</thead><tbody>{body}</tbody></table>"


def _text(cell: object) -> str:
    return "" if cell is None else printable(str(cell))


def results_table(cells: Sequence[Cell]) -> PlainTable:
    """Mean and standard deviation of A_T and F_T, a row per cell.

    The title has what all cells share. If any cell held training data out, the headings name the
    columns of validation and of the test set.
    """
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
        # Exceptions ("9, 1 diverged") stay in a column.
        if in_common and len(values) == 1 and not any("," in value for value in values):
            shared.append(in_common.format(values.pop()))
        else:
            columns.append((name, texts))
    validated = any(cell.has_validation for cell in cells)
    shares = {cell.config.validation for cell in cells}
    if validated and len(shares) == 1:
        shared.append(f"held out for validation: {100 * shares.pop():g} %")
    columns += [
        (heading, [write_spread(cell.spreads[measure]) for cell in cells])
        for heading, measure in (_VALIDATED if validated else _TESTED)
    ]
    rows = zip(*[texts for _, texts in columns], strict=True)
    table = PlainTable([name for name, _ in columns], rows, left=("benchmark", "method"))
    table.title = Text(printable(", ".join(shared)), style="bold")
    if validated:  # too wide for some terminals: fold it, rather than cut figures off
        for column, (name, texts) in zip(table.columns, columns, strict=True):
            column.min_width = max(map(len, [*name.splitlines(), *texts]))
    return table


def curve_table(cells: Sequence[Cell]) -> PlainTable:
    """Metrics that were measured within tasks, a row per cell."""
    rows = [
        [
            *(cell.label, str(cell.config.buffer or "-"), str(cell.trials)),
            *(write_spread(cell.spreads[measure]) for measure in _CURVES.values()),
        ]
        for cell in cells
    ]
    return PlainTable(["method", "buffer", "trials", *_CURVES], rows, left=("method",))


def write_spread(spread: Spread, *, aligned: bool = True) -> str:
    """`85.29 ±2.05`; without the standard deviation for one trial, "-" if nothing was measured.

    With `aligned`, the means in a column line up for most standard deviations.
    """
    if math.isnan(spread.mean):
        return "-"
    none = "     -" if aligned else ""
    return f"{spread.mean:.2f}" + (f" ±{spread.std:.2f}" if spread.trials > 1 else none)


def lost_trials(cell: Cell) -> list[str]:
    """`1 diverged`, `2 failed`."""
    counts = ((cell.diverged, "diverged"), (cell.failed, "failed"))
    return [f"{count} {status}" for count, status in counts if count]


def _write_trials(cell: Cell) -> str:
    notes = lost_trials(cell)
    if len(cell.hardware) > 1:
        notes.append(f"on {len(cell.hardware)} kinds of hardware")
    return ", ".join([str(cell.trials), *notes])
