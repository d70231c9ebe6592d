"""Write the tables of the README and the docs from the trials in docs/data.

    python website/tables.py                 # fill in all tables
    python website/tables.py --store FILE    # first export the trials of a store to docs/data

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. `website/trials.sh` runs the
trials.
"""

import argparse
import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from remask.papers.experiments import PaperCell, experiment_cells, statements
from remask.papers.published import claims
from remask.reports.comparison import (
    ComparedCell,
    compare,
    comparison_markdown,
    decide,
    decide_by_the_paper,
    paper_cell,
    verdicts,
)
from remask.reports.tables import PlainTable
from remask.reports.tables import write_aligned as write
from remask.store import Cell, Spread, Store, export, read_export, summarise
from remask.store.cells import spread, write_spread

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "docs" / "data" / "split-mnist.json"
BEYOND = ROOT / "docs" / "data" / "beyond.csv"
ONLINE = ROOT / "docs" / "data" / "online-cifar10.json"
FASHION = ROOT / "docs" / "data" / "fashion-mnist.json"
PHOTOGRAPHS = ROOT / "docs" / "data" / "photographs.csv"
_TABLE = re.compile(r"(<!-- table: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = Mapping[str, str]
"""A trial of `BEYOND`: its settings and scores."""
Where = Mapping[str, object]
"""The settings of a cell; those that are not named are the method's usual ones."""


class MissingTrialsError(Exception):
    """`docs/data` lacks trials of a table."""


# ---- The paper ----------------------------------------------------------------------------------


@cache
def paper_cells() -> dict[PaperCell, Cell]:
    """Our cells on Split-MNIST with the published settings."""
    return {paper_cell(cell): cell for cell in summarise(read_export(PAPER))}


def compared(experiment: str) -> list[ComparedCell]:
    """The cells of an experiment beside the published figures, without repetitions."""
    return compare(experiment_cells(experiment, "split-mnist"), list(paper_cells().values()))


def experiment_table(experiment: str) -> str:
    """Ours beside the published figures."""
    if not all(cell.ours for cell in compared(experiment)):
        raise MissingTrialsError(f"remask reproduce {experiment}")
    return comparison_markdown(compared(experiment))


def method_table(method: str, *masks: str) -> str:
    """The same for one method, also where its figures are from other papers."""
    wanted = {None if mask == "none" else float(mask) for mask in masks} or {None}
    published = {
        PaperCell(claim.benchmark, method, claim.mask, claim.buffer): None
        for claim in claims()
        if claim.benchmark == "split-mnist" and claim.method == method and claim.mask in wanted
    }
    cells = compare(list(published), list(paper_cells().values()))
    if not all(cell.ours for cell in cells):
        raise MissingTrialsError(f"trials of {method}")
    return comparison_markdown(cells)


def short_table() -> str:
    """The paper's main systems at buffer 200: accuracy and forgetting."""
    rows = []
    for cell in compared("main"):
        if cell.paper.buffer == 200:
            row = [cell.label]
            for measure in ("class_il_A_T", "class_il_F_T"):
                figure = cell.figures[measure]
                row += [write(figure.ours) if figure.ours else "-", write(figure.published)]
            rows.append(row)
    names = ["buffer 200", "accuracy", "paper", "forgetting", "paper"]
    return PlainTable(names, rows, left=("buffer 200",)).markdown()


def mask_table() -> str:
    """Class-IL A_T of DER++ with every mask."""
    cells = [cell for cell in compared("ablation") if cell.ours]
    labels = list(dict.fromkeys(cell.label for cell in cells))
    rows = [
        [
            label,
            *(write(c.ours.spreads["class_il_A_T"]) for c in cells if c.ours and c.label == label),
        ]
        for label in labels
    ]
    return PlainTable(["", "200", "500", "5120"], rows, left=("",)).markdown()


def statements_table() -> str:
    """What the paper says, decided by our trials and by the paper's own figures."""
    asked = statements("split-mnist")
    rows = []
    for ours, theirs in zip(decide(asked, paper_cells()), decide_by_the_paper(asked), strict=True):
        holding = sum(evidence.finding == "holds" for evidence in ours.evidence)
        printed = "-" if theirs.finding == "not run" else theirs.finding
        share = f"{holding} of {len(ours.evidence)}"
        rows.append([ours.statement.text, ours.finding, share, printed])
    names = ["the paper says", "our trials", "holds in", "the paper's own figures"]
    return PlainTable(names, rows, left=names).markdown()


def counts(*experiments: str) -> str:
    """How many figures agree with the published ones."""
    cells = {c.paper: c for name in experiments for c in compared(name)}
    if not all(cell.ours for cell in cells.values() if cell.figures):
        raise MissingTrialsError(f"remask reproduce {','.join(experiments)}")
    figures = [figure for cell in cells.values() for figure in cell.figures.values()]
    found = verdicts(list(cells.values()))
    near = sum(figure.is_near for figure in figures)
    better, worse = found["better"], found["worse"]
    return (
        f"**Of the {len(figures)} published figures, {near} lie within two standard deviations.** "
        f"{better + worse} differ significantly (Welch's t-test): {better} better, {worse} worse; "
        f"about {round(len(figures) / 20)} are expected by chance.\n"
    )


def statement_counts() -> str:
    """How many statements of the paper hold."""
    found = [decision.finding for decision in decide(statements("split-mnist"), paper_cells())]
    return (
        f"Of the paper's {len(found)} statements about this benchmark, {found.count('holds')} hold "
        f"in our trials, {found.count('contradicted')} are contradicted and "
        f"{found.count('undecided')} are undecided.\n"
    )


def gap_table() -> str:
    """Accuracy within tasks."""
    measures = ("class_il_A_T", "class_il_min_ACC", "class_il_WC_ACC", "class_il_switch_drop")
    rows = []
    for cell in experiment_cells("gap", _MNIST):
        mask = "none" if cell.mask is None else str(cell.mask)
        where = {"method": cell.method, "mask": mask, "evaluate_every": str(cell.evaluate_every)}
        found = [write(accuracy(_MNIST, cell.buffer, where, measure=name)) for name in measures]
        rows.append([cell.label, str(cell.buffer), *found])
    names = ["method", "buffer", "A_T", "min-ACC", "WC-ACC", "drop after a switch"]
    return PlainTable(names, rows, left=("method",)).markdown()


def published_table(experiment: str, benchmark: str, trials: Path) -> str:
    """Ours beside what others published, for the cells of an experiment that were run."""
    rows = []
    for cell in compare(experiment_cells(experiment, benchmark), summarise(read_export(trials))):
        if cell.ours is None:
            continue
        published = "-"
        if figure := cell.figures.get("class_il_A_T"):
            published = write_spread(figure.published)
            published += f", {figure.verdict}" * (cell.ours.trials > 2)
        spreads = cell.ours.spreads
        measures = ("class_il_A_T", "class_il_F_T", "task_il_A_T")
        found = [write_spread(spreads[measure]) for measure in measures]
        label = cell.label.replace(f", {cell.paper.protocol}", "")
        numbers = [str(cell.paper.buffer or "-"), str(cell.ours.trials)]
        rows.append([label, *numbers, *found, published])
    names = ["method", "buffer", "trials", "A_T", "F_T", "Task-IL A_T", "published A_T"]
    return PlainTable(names, rows, left=("method",)).markdown()


def online_table(experiment: str) -> str:
    """Ours on Split-CIFAR-10 in one pass, beside what is published."""
    return published_table(experiment, "split-cifar10", ONLINE)


def fashion_published_table() -> str:
    """Ours on Split-Fashion-MNIST with the settings of Buzzega et al. 2020, beside theirs."""
    return published_table("fashion", _FASHION, FASHION)


def features_table() -> str:
    """Methods on Split-CIFAR-10 as the features of a frozen encoder."""
    rows = []
    for name, method, mask, buffers in (
        ("NCM", "ncm", "none", (0,)),
        ("SLDA", "slda", "none", (0,)),
        ("RIDGE", "ridge", "none", (0,)),
        *(
            (label, method, mask, (200, FEATURES_AT_EQUAL_BYTES))
            for label, method, mask in (
                ("ER", "er", "none"),
                ("MSER(-inf)", "er", "-inf"),
                ("MSER(-1)", "er", "-1.0"),
                ("MSER(auto)", "er", "auto"),
                ("MSER-EMA(0)", "er_ema", "0.0"),
            )
        ),
    ):
        found = [
            _photographs("my_features:features", method=method, mask=mask, buffer=str(size))
            for size in buffers
        ]
        figures = [write_spread(each) for each in found]
        rows.append([name, *(figures if len(figures) > 1 else ["", *figures])])
    names = ["", "200 samples", "equal bytes"]
    return PlainTable(names, rows, left=("",)).markdown()


FEATURES_AT_EQUAL_BYTES = 1290
"""Samples of 1,280 float32 that take as many bytes as SLDA's covariance and means."""


def _photographs(benchmark: str, **settings: str) -> Spread:
    with PHOTOGRAPHS.open(newline="", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["benchmark"] == benchmark
            and all(row[name] == value for name, value in settings.items())
        ]
    if not rows:
        raise MissingTrialsError(f"{benchmark}, {settings}")
    return spread([float(row["class_il_A_T"]) for row in rows if row["status"] == "finished"])


# ---- Beyond the paper ---------------------------------------------------------------------------

_MNIST, _FASHION = "split-mnist", "split-fashion-mnist"
_EMA: Where = {"method": "er_ema", "mask": "0.0"}
_CLS: Where = {"method": "cls_er", "mask": "none"}


@cache
def _trials() -> list[Row]:
    with BEYOND.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _usual(row: Row) -> Where:
    """The settings of a trial that a table does not name."""
    if row["method"] != "er_ema":
        return {"memory": "reservoir", "mask_stored": "False", "evaluate_every": "0"}
    fade = "0.0" if row["mask"] in ("none", "auto") else "4.0"
    usual = {"memory": "reservoir", "lr": "0.15", "alpha": "0.5", "fade": fade}
    return {**usual, "evaluate_every": "0"}


def accuracy(
    benchmark: str,
    buffer: int,
    where: Where,
    seeds: range = range(10),
    measure: str = "class_il_A_T",
) -> Spread:
    """Mean and deviation of a measure of the trials with these settings."""
    rows = [
        row
        for row in _trials()
        if row["benchmark"] == benchmark
        and int(row["buffer"]) == buffer
        and int(row["seed"]) in seeds
        and all(row[name] == value for name, value in {**_usual(row), **where}.items())
    ]
    if len(rows) < len(seeds):
        raise MissingTrialsError(f"{benchmark}, buffer {buffer}, {dict(where)}")
    found = [float(row[measure]) for row in rows if row["status"] == "finished"]
    return spread(found)


def rows_by_buffer(
    benchmark: str, buffers: Sequence[int], systems: Mapping[str, Where], seeds: range = range(10)
) -> list[list[str]]:
    """A row per system, a column per buffer."""
    return [
        [name, *(write(accuracy(benchmark, size, where, seeds)) for size in buffers)]
        for name, where in systems.items()
    ]


def beyond_table() -> str:
    """The rule and its parts on Split-MNIST."""
    sizes = (200, 500, 5120)
    later = range(20, 30)
    tuned = {**_EMA, "memory": "merging", "lr": "0.2"}
    rows = [
        ["best in the paper's tables", "88.21 ±0.49", "91.01 ±0.46", "95.30 ±1.20"],
        ["CLS-ER, as published", "89.54 ±0.21", "92.05 ±0.32", "95.73 ±0.11"],
        *rows_by_buffer(
            _MNIST, sizes, {"CLS-ER, ours": _CLS, "**MSER-EMA(0), seeds 0 to 9**": _EMA}
        ),
        *rows_by_buffer(_MNIST, sizes, {"**MSER-EMA(0), seeds 20 to 29**": _EMA}, later),
        *rows_by_buffer(
            _MNIST, sizes, {"**merging memory, learning rate 0.2, seeds 0 to 9**": tuned}
        ),
        *rows_by_buffer(_MNIST, sizes, {"**the same, seeds 20 to 29**": tuned}, later),
        *rows_by_buffer(
            _MNIST,
            sizes,
            {
                "MSER-EMA(auto): [no m to choose](which-m.md)": {**_EMA, "mask": "auto"},
                "without a mask": {**_EMA, "mask": "none"},
                "the mask does not fade": {**_EMA, "fade": "0.0"},
                "the copy predicts but does not teach": {**_EMA, "alpha": "0.0"},
                "LODE": {"method": "lode", "mask": "none"},
                "ER-LAS": {"method": "er_las", "mask": "none"},
            },
        ),
    ]
    return _table(rows, sizes)


def fashion_table() -> str:
    """The rule and others on Split-Fashion-MNIST."""
    sizes = (200, 500, 5120)
    systems = {
        "MSER-EMA(auto)": {**_EMA, "mask": "auto"},
        "MSER-EMA(0)": _EMA,
        "ER-EMA": {**_EMA, "mask": "none"},
        "CLS-ER": _CLS,
        "DER++": {"method": "derpp", "mask": "none"},
        "MSDER++(-inf)": {"method": "derpp", "mask": "-inf"},
        "MSDER++(-1)": {"method": "derpp", "mask": "-1.0"},
        "MSER(-inf)": {"method": "er", "mask": "-inf"},
        "ER": {"method": "er", "mask": "none"},
    }
    return _table(rows_by_buffer(_FASHION, sizes, systems), sizes)


def merging_table() -> str:
    """A reservoir against a merging memory on Split-MNIST."""
    systems: dict[str, Where] = {
        "ER": {"method": "er", "mask": "none"},
        "MSER(-inf)": {"method": "er", "mask": "-inf"},
        "DER++": {"method": "derpp", "mask": "none"},
        "MSDER++(-1)": {"method": "derpp", "mask": "-1.0"},
        "CLS-ER": _CLS,
        "MSER-EMA(auto)": {**_EMA, "mask": "auto"},
        "MSER-EMA(0)": _EMA,
    }
    rows = [
        [name]
        + [
            write(accuracy(_MNIST, size, {**where, "memory": memory}))
            for size in (200, 500)
            for memory in ("reservoir", "merging")
        ]
        for name, where in systems.items()
    ]
    return _table(rows, ("200, reservoir", "200, merging", "500, reservoir", "500, merging"))


def auto_table(memory: str) -> str:
    """`er_ema` with the mask auto against fixed masks."""
    return _against_fixed(
        [(data, size, "er_ema") for data in (_MNIST, _FASHION) for size in (50, 200, 500, 5120)],
        {"`none`": "none", "`0 fading 4`": "0.0"},
        memory,
    )


def auto_baselines_table() -> str:
    """ER and DER++ with the mask auto against the paper's masks."""
    cells = [
        (d, size, m) for d in (_MNIST, _FASHION) for m in ("er", "derpp") for size in (200, 500)
    ]
    return _against_fixed(cells, {"`none`": "none", "`-inf`": "-inf", "`-1`": "-1.0"}, "reservoir")


def _against_fixed(
    cells: Iterable[tuple[str, int, str]], masks: Mapping[str, str], memory: str
) -> str:
    titles = {_MNIST: "Split-MNIST", _FASHION: "Split-Fashion-MNIST"}
    names = {"er_ema": "ER-EMA", "er": "ER", "derpp": "DER++"}
    rows = []
    for data, size, method in cells:
        where = {"method": method, "memory": memory}
        auto = accuracy(data, size, {**where, "mask": "auto"})
        fixed = {
            title: accuracy(data, size, {**where, "mask": mask})
            for title, mask in masks.items()
            if not (method == "er" and mask == "-1.0")
        }
        best = max(found.mean for found in fixed.values())
        shown = [write(fixed[title]) if title in fixed else "" for title in masks]
        rows.append(
            [
                names[method],
                titles[data],
                f"{size}",
                write(auto),
                *shown,
                f"{auto.mean - best:+.2f}",
            ]
        )
    columns = ["method", "benchmark", "buffer", "auto", *masks, "auto - best"]
    return PlainTable(columns, rows, left=("method", "benchmark")).markdown()


def _table(rows: Sequence[Sequence[str]], columns: Sequence[object]) -> str:
    return PlainTable(["", *map(str, columns)], [list(row) for row in rows], left=("",)).markdown()


# ---- Files --------------------------------------------------------------------------------------

TABLES: Mapping[str, Callable[..., str]] = {
    "experiment": experiment_table,
    "method": method_table,
    "short": short_table,
    "masks": mask_table,
    "statements": statements_table,
    "counts": counts,
    "statement-counts": statement_counts,
    "gap": gap_table,
    "online": online_table,
    "fashion-published": fashion_published_table,
    "features": features_table,
    "beyond": beyond_table,
    "fashion": fashion_table,
    "merging": merging_table,
    "auto": auto_table,
    "auto-baselines": auto_baselines_table,
}


def filled_in(page: str) -> str:
    """A page with its tables as the data has them; those that lack trials stay as they are."""

    def table(found: re.Match[str]) -> str:
        kind, *arguments = found[2].split()
        try:
            text = TABLES[kind](*arguments).rstrip()
        except MissingTrialsError as error:
            print(f"table {found[2]} stays as it is; missing: {error}")
            return found[0]
        return f"{found[1]}{text}\n{found[3]}"

    return _TABLE.sub(table, page)


def pages() -> list[Path]:
    """The README and the pages of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def export_trials(store: Store) -> None:
    """Export the published settings as JSON, which can be imported, and all else as CSV."""
    wanted = set(experiment_cells("all", _MNIST))
    extra = ("pnn-independent", "icarl-dark", "er_ace", "cls_er")
    records = list(store.records({}))
    of_paper = {
        record.config_hash
        for cell in summarise(records)
        if paper_cell(cell) in wanted or cell.config.method in extra
        for record in cell.records
        if cell.config.benchmark == _MNIST
    }
    export([r for r in records if r.config_hash in of_paper], "json", PAPER)
    if any(r.config.method == "er_ema" for r in records):  # the whole of website/trials.sh
        export(records, "csv", BEYOND)


def main() -> None:
    """Export if asked to, and fill in all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", type=Path, help="export the trials of this store first")
    options = parser.parse_args()
    if options.store is not None:
        with Store(options.store) as store:
            export_trials(store)
    for page in pages():
        text = page.read_text("utf-8")
        if (filled := filled_in(text)) != text:
            page.write_text(filled, "utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
