"""Tables for the terminal, for notebooks and for documents."""

import html
import io
import math
from collections import Counter
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
from remask.reports.measures import (
    FEWEST_TRIALS,
    LEVEL,
    MEASURES,
    SETTINGS,
    VALIDATION_MEASURES,
    by_seed,
    contrasts,
    t_test,
)
from remask.store.cells import Cell, Spread, grouped, write_spread
from remask.store.latex import best_cells

_DATA = ("benchmark", "tasks", "class_order", "limit", "blur", "share", "validation")
"""The settings that determine what there is to learn."""
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
        rows = list(rows)
        is_long = len(rows) > _LONGEST_RICH_TABLE  # which rich does not render
        for row in rows:
            # As Text: a name that looks like markup is still a name.
            as_text = (Text(printable(cell)) if isinstance(cell, str) else cell for cell in row)
            self.add_row(*(row if is_long else as_text))

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


def plain_html(cells: Sequence[Cell]) -> str:
    """Results and contrasts as plain tables, for readers of the page without scripts."""
    cells = [cell for cell in cells if cell.trials]
    if not cells:
        return ""
    measures = shown_measures(cells)
    best = {name: best_cells(cells, name, lowest=name.endswith("F_T")) for name in measures}
    rows = []
    for cell in cells:
        row = [cell.config.benchmark, cell.label, cell.config.buffer or "-", cell.trials]
        texts = [html.escape(printable(str(value))) for value in row]
        for name in measures:
            text = write_spread(cell.spreads[name])
            texts.append(f"<strong>{text}</strong>" if id(cell) in best[name] else text)
        rows.append(texts)
    heads = ["Benchmark", "System", "Buffer", "Trials", *measures.values()]
    results = table_html("Results: mean ± std; the best of each buffer in bold", heads, rows)
    return results + _plain_contrasts(cells)


def _plain_contrasts(cells: Sequence[Cell]) -> str:
    rows = []
    for found in contrasts(cells):
        row = [found.plain.config.benchmark, found.plain.label, found.masked.label]
        row += [str(found.plain.config.buffer or "-")]
        for name in MEASURES:
            each = found.differences.get(name)
            p = f" (p = {each.test.p_different:.2g})" if each and each.test else ""
            row.append(f"{each.mean:+.2f}{p}" if each else "-")
        rows.append([html.escape(printable(text)) for text in row])
    caption = "What the mask changes, in points (p of a t-test, paired by seed)"
    heads = ["Benchmark", "Without a mask", "With a mask", "Buffer", *MEASURES.values()]
    return table_html(caption, heads, rows) if rows else ""


def shown_measures(cells: Sequence[Cell]) -> dict[str, str]:
    """The measures in tables of these cells, with titles that tell test from validation."""
    if not any(cell.config.validation for cell in cells):
        return MEASURES
    return {**{name: f"test {title}" for name, title in MEASURES.items()}, **VALIDATION_MEASURES}


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
    validated = any(cell.config.validation for cell in cells)
    shares = {cell.config.validation for cell in cells}
    if validated and len(shares) == 1:
        shared.append(f"held out for validation: {100 * shares.pop():g} %")
    columns += [
        (heading, [write_aligned(cell.spreads[measure]) for cell in cells])
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
            *(write_aligned(cell.spreads[measure]) for measure in _CURVES.values()),
        ]
        for cell in cells
    ]
    return PlainTable(["method", "buffer", "trials", *_CURVES], rows, left=("method",))


def write_aligned(spread: Spread) -> str:
    """A mean and deviation so that the means in a column line up for most deviations."""
    return write_spread(spread, alone="     -")


def best_by_validation(cells: Sequence[Cell]) -> list[str]:
    """Describe the best cell by validation and its test accuracy, a line per kind of data.

    Cells that learnt from different data, tasks or shares are not comparable. Empty if no cell
    held data out.
    """
    groups = by_data([cell for cell in cells if cell.config.validation])
    return [
        " ".join(_sentences(group, f" on {data}" if len(groups) > 1 else ""))
        for data, group in groups.items()
    ]


def chosen_by_validation(cells: Sequence[Cell]) -> tuple[str, list[Cell], list[Cell]]:
    """The measure of validation, the cells that have it, and the best of them."""
    for setting in SETTINGS:
        measure = f"validation_{setting}_A_T"
        if known := [cell for cell in cells if not math.isnan(cell.spreads[measure].mean)]:
            highest = max(cell.spreads[measure].mean for cell in known)
            best = [cell for cell in known if math.isclose(cell.spreads[measure].mean, highest)]
            return measure, known, best
    return "", [], []


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


def _sentences(cells: Sequence[Cell], where: str) -> list[str]:
    if len(cells) == 1:
        return [f"nothing to choose{where}: there is only one cell."]
    measure, known, best = chosen_by_validation(cells)
    if not best:
        return [f"nothing to choose{where}: no trial has finished."]
    several_buffers = len({cell.config.buffer for cell in cells}) > 1
    chosen = [
        _choice(cell, measure, f", buffer {cell.config.buffer}" if several_buffers else "")
        for cell in best
    ]
    tied = "tied as " if len(best) > 1 else ""
    sentences = [f"{tied}best by validation{where}: {' | '.join(chosen)}."]
    if len(known) > len(best):
        sentences.append(_reliability(best, known, measure))
    if len(cells) > len(known):
        sentences.append(f"Cells without a finished trial: {len(cells) - len(known)}.")
    return sentences


def _choice(cell: Cell, measure: str, more: str) -> str:
    held_out = write_spread(cell.spreads[measure])
    test = write_spread(cell.spreads[measure.removeprefix("validation_")])
    trials = ", ".join([f"n={cell.trials}", *cell.lost])
    return f"{cell.label}{more} ({VALIDATION_MEASURES[measure]} {held_out}, {trials}); test: {test}"


def _reliability(best: Sequence[Cell], known: Sequence[Cell], measure: str) -> str:
    others = [cell for cell in known if cell not in best]
    values = by_seed(measure, best[0])
    tests = [t_test(values, by_seed(measure, cell)) for cell in others]
    made = [test for test in tests if test is not None]
    if not made:
        return f"Fewer than {FEWEST_TRIALS} trials per cell: too few for a test."
    alike = sum(test.p_different >= LEVEL for test in made)
    few = len(others) - len(made)
    if not alike and not few:
        return f"It differs significantly from every other cell (t-test at {100 * LEVEL:g} %)."
    return (
        f"Other cells without a significant difference from it (t-test at {100 * LEVEL:g} %): "
        f"{alike} of {len(others)}" + (f"; with too few trials for a test: {few}." if few else ".")
    )


def _write_trials(cell: Cell) -> str:
    notes = cell.lost
    if len(cell.hardware) > 1:
        notes.append(f"on {len(cell.hardware)} kinds of hardware")
    return ", ".join([str(cell.trials), *notes])
