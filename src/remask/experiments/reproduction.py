"""The paper: its settings and trials, and comparisons of results with its figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remask.config import CONDITIONS, TrialConfig, read_mask
from remask.errors import SettingsError, UnknownNameError, unknown
from remask.experiments.configs import combine, several, trial_configs
from remask.experiments.results import Compared, Results
from remask.names import systems_named, unknown_method
from remask.papers.experiments import (
    PaperCell,
    experiment_cells,
    published_benchmarks,
    published_figures,
    statements,
)
from remask.reports.comparison import (
    STATEMENT_TEST,
    Decision,
    compare,
    decide,
    decide_by_the_paper,
    decision_table,
    paper_cell,
)
from remask.reports.tables import (
    CURVES_NOTE,
    PlainTable,
    curve_table,
)
from remask.store.cells import Cell


@dataclass(frozen=True, repr=False)
class Reproduction:
    """A part of the paper: our trials, the comparison, and tests of the paper's statements."""

    results: Results
    compared: Compared
    decided: list[Decision]
    """The statements that these cells can decide, by our trials."""
    by_the_paper: list[Decision]
    """The same statements, by the paper's own figures."""

    @classmethod
    def of(cls, cells: Sequence[PaperCell], results: Results) -> "Reproduction":
        """Compare the results of these cells with the paper."""
        ours = results.cells()
        wanted = set(cells)
        stated = [
            statement
            for benchmark in dict.fromkeys(cell.benchmark for cell in cells)
            for statement in statements(benchmark)
            if all({e.higher, e.lower} <= wanted for e in statement.expectations)
        ]
        return cls(
            results,
            Compared(compare(cells, ours)),
            decide(stated, {paper_cell(cell): cell for cell in ours}),
            decide_by_the_paper(stated),
        )

    @property
    def within_tasks(self) -> list[Cell]:
        """The cells that were also measured within tasks."""
        return [cell for cell in self.results.cells() if cell.config.evaluate_every]

    def tables(self) -> list[tuple[PlainTable, str]]:
        """The tables of decided statements and of accuracy within tasks, each with a note."""
        found = []
        if self.decided:
            found.append(
                (decision_table(self.decided, self.by_the_paper), f"Test: {STATEMENT_TEST}.")
            )
        if cells := self.within_tasks:
            found.append((curve_table(cells), CURVES_NOTE))
        return found

    def markdown(self) -> str:
        """The comparison and the tables in Markdown."""
        tables = [table.markdown() + note for table, note in self.tables()]
        return "\n".join([self.compared.markdown(), *tables])

    def as_json(self) -> dict[str, Any]:
        """What commands print with --json."""
        statements = [
            {
                "statement": ours.statement.text,
                "section": ours.statement.section,
                "ours": ours.finding,
                "paper": paper.finding,
            }
            for ours, paper in zip(self.decided, self.by_the_paper, strict=True)
        ]
        compared = self.compared.as_json()
        return {**self.results.as_json(), "compared": compared, "statements": statements}

    def __repr__(self) -> str:
        parts = [str(self.compared)]
        for table, note in self.tables():
            parts += [str(table), note]
        return "\n".join([*parts, *self.results.failures])

    def _repr_html_(self) -> str:
        tables = [table._repr_html_() for table, _ in self.tables()]
        return "".join([self.compared._repr_html_(), *tables])


_DEFAULT_TRIALS = 10  # of a cell without published figures
_DEMO = {"er": "none,-inf", "derpp": "none,-inf,-1"}


def wanted_cells(
    experiment: str | Sequence[str],
    benchmarks: str | Sequence[str] | None,
    filters: Mapping[str, Sequence[str]],
) -> list[PaperCell]:
    """The cells of experiments on the named benchmarks, or on `all`, that pass the filters.

    Without `benchmarks`, on the first benchmark that has them. `filters` may have lists of
    `method`, `mask` and `buffer`.
    """
    known = published_benchmarks()
    experiments = several(experiment)
    having = [name for name in known if any(experiment_cells(e, name) for e in experiments)]
    names = having[:1] if benchmarks is None else several(benchmarks)
    names = known if benchmarks == "all" else names
    for name in names:
        if name not in known:
            raise UnknownNameError(unknown("benchmark of the paper", name, [*known, "all"]))
    cells = [cell for name in names for e in experiments for cell in experiment_cells(e, name)]
    if not cells:
        raise SettingsError(
            f"there is no {','.join(experiments)!r} experiment on {', '.join(names)}"
        )
    cells = list(dict.fromkeys(cells))
    for field, values in filters.items():
        cells = _only(cells, field, values)
    return cells


def configs_of(cell: PaperCell, trials: int | None) -> list[TrialConfig]:
    """The trials of a cell with published settings; by default as many as in the paper."""
    published = None  # the settings of the online protocol were chosen by a few trials each
    if cell.protocol == "paper":
        published = next((claim.trials for claim in published_figures(cell).values()), None)
    return trial_configs(
        benchmark=cell.benchmark,
        method=cell.method,
        masks=[cell.mask],
        buffer=cell.buffer or None,
        seeds=range(trials or published or _DEFAULT_TRIALS),
        overrides={name: getattr(cell, name) for name in ("evaluate_every", *CONDITIONS)},
    )


def cell_configs(cells: Sequence[PaperCell], trials: int | None) -> list[TrialConfig]:
    """The trials of several cells."""
    return [config for cell in cells for config in configs_of(cell, trials)]


def demo_configs(trials: int) -> list[TrialConfig]:
    """The trials of the demo: replay with and without masks on the embedded digits."""
    return [
        config
        for method, masks in _DEMO.items()
        for config in combine({"method": method, "mask": masks, "trials": trials})
    ]


def _only(cells: Sequence[PaperCell], field: str, wanted: Sequence[str]) -> list[PaperCell]:
    """The cells with one of the wanted values in `field`; each value must match a cell."""
    values = dict.fromkeys(getattr(cell, field) for cell in cells)
    chosen: set[PaperCell] = set()
    for text in wanted:
        if field == "method":
            systems = systems_named(text, values)
            found = {c for c in cells if any(s.include(c.method, c.mask) for s in systems)}
        else:
            try:
                value = read_mask(text) if field == "mask" else int(text)
            except ValueError as error:
                raise SettingsError(f"{field} = {text!r}: {error}") from None
            found = {cell for cell in cells if getattr(cell, field) == value}
        if not found and field == "method":
            raise unknown_method("method of these cells", text, values)
        if not found:
            known = [f"{v:g}" if isinstance(v, float) else str(v).lower() for v in values]
            raise UnknownNameError(unknown(f"{field} of these cells", text, known))
        chosen |= found
    return [cell for cell in cells if cell in chosen]
