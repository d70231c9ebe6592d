"""Measure how long large stores take to list, to plan and to report, and their peak memory.

Run with ``python benchmarks/store_growth.py``. One trial is trained on Split-Digits; the trials of
the store are copies of its record with other settings, seeds and accuracies. Each line is one
command of the command line in a process of its own: wall time from start to exit, CPU time, and the
largest resident set.
"""

import argparse
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import remask
from remask.store import Store, TrialRecord, TrialSummary
from remask.store.store import COLUMNS, sealed, to_row

METHODS = ("er", "derpp", "der", "er_ace")
BUFFERS = (50, 200, 500, 1_000, 5_000)


def rows(record: TrialRecord, cells: int, seeds: int) -> Iterator[tuple[Any, ...]]:
    """Rows of `cells` cells with `seeds` seeds each; their accuracies are drawn from 50 records."""
    draw = random.Random(0)
    variants = [to_row(_scaled(record, draw.uniform(0.5, 1.0))) for _ in range(50)]
    for cell in range(cells):
        settings: dict[str, Any] = {
            "method": METHODS[cell % len(METHODS)],
            "mask": (None, -1.0)[cell // 4 % 2],
            "buffer": BUFFERS[cell // 8 % len(BUFFERS)],
        }
        changes = {**settings, "lr": round(0.001 * (1 + cell // 40), 4), "seed": 0}
        config = record.config.model_copy(update=changes)
        canonical = config.canonical
        for seed in range(seeds):
            trial = config.model_copy(update={"seed": seed})
            *summary, _, _, details = draw.choice(variants)
            identity: dict[str, Any] = {"config_hash": trial.hash, "cell": canonical, "seed": seed}
            yield sealed(TrialSummary(*summary)._replace(**settings, **identity), details)


def _scaled(record: TrialRecord, share: float) -> TrialRecord:
    matrices = {
        name: tuple(tuple(share * value for value in row) for row in getattr(record, name))
        for name in ("class_il", "task_il")
    }
    return record.model_copy(update=matrices)


def make_store(path: Path, record: TrialRecord, cells: int, seeds: int) -> None:
    """Fill a new store with rows as `Store.add` writes them, without computing their metrics."""
    Store(path).close()
    marks = ", ".join("?" * len(COLUMNS))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            f"INSERT INTO trials ({', '.join(COLUMNS)}) VALUES ({marks})",
            rows(record, cells, seeds),
        )


def measure(what: str, arguments: Sequence[str], written: Path | None = None) -> None:
    """Run a command and print its wall time, its peak memory and the size of what it wrote."""
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "remask", *arguments], stdout=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} failed with exit code {process.returncode}")
    size = "" if written is None else f"{written.stat().st_size / 1e6:.1f} MB"
    cpu, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    print(f"| {what} | {seconds:.1f} s | {cpu:.1f} s | {memory:.0f} MiB | {size} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100_000, help="of the store and of the sweep")
    parser.add_argument("--seeds", type=int, default=10, help="trials per cell of the store")
    parser.add_argument("--report", type=int, default=1_000, help="cells of the report")
    parser.add_argument("--only", default="list,export,sweep,report", help="comma-separated")
    options = parser.parse_args(arguments)
    only = options.only.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trained = remask.run(
            "split-digits", "er", buffer=200, trials=1, store=folder / "one.db", progress=False
        )
        print(
            "| command | time | CPU | memory | file |\n| --- | ---: | ---: | ---: | ---: |",
            flush=True,
        )
        trials, store = options.trials, str(folder / "large.db")
        if "list" in only or "export" in only:
            make_store(Path(store), trained[0], trials // options.seeds, options.seeds)
            of = f"{trials:,} trials, {trials // options.seeds:,} cells"
        if "list" in only:
            measure(f"`results list`, {of}", ["results", "list", "--store", store])
            measure(f"`list --json`, {of}", ["results", "list", "--json", "--store", store])
            measure(f"`list --trials`, {of}", ["results", "list", "--trials", "--store", store])
        if "export" in only:
            for ending in ("csv", "json"):
                target = folder / f"all.{ending}"
                of = f"`export all.{ending}`, {trials:,} trials"
                measure(of, ["results", "export", str(target), "--store", store], target)
        if "sweep" in only:
            grid = folder / "grid.toml"
            for cells in sorted({trials // 10, trials}):
                rates = [round(1e-6 * (1 + rate), 6) for rate in range(cells)]
                shared = f'benchmark = "split-digits"\nmethod = "er"\ntrials = {trials // cells}\n'
                grid.write_text(f"{shared}[grid]\nlr = {rates}\n")
                of = f"`sweep --dry-run`, {trials:,} trials, {cells:,} cells"
                measure(of, ["sweep", str(grid), "--dry-run", "--store", str(folder / "one.db")])
        if "report" in only:
            some, page = folder / "some.db", folder / "report.html"
            make_store(some, trained[0], options.report, 3)
            of = f"`report`, {options.report:,} cells, {3 * options.report:,} trials"
            measure(of, ["report", str(page), "--store", str(some)], page)


if __name__ == "__main__":
    main()
