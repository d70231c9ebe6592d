"""`remask run`, `sweep`, `reproduce`, `resume` and `demo`: train trials and print tables."""

import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, Field

from remask.cli import app
from remask.cli.app import Printer, Printing, exit_if_any
from remask.cli.options import (
    EXPERIMENT,
    RUN,
    STORE,
    VALUES,
    Group,
    Markdown,
    StorePath,
    arg,
    number,
    opt,
    option,
    option_for,
)
from remask.cli.results import FILTER_OPTIONS
from remask.config import IDENTITY, OnCommandLine, TrialConfig
from remask.errors import SettingsError
from remask.experiments.options import RunOptions
from remask.machine import write_duration
from remask.outputs import check_output
from remask.store.database import store_path
from remask.store.export import export
from remask.store.store import Store

if TYPE_CHECKING:
    from remask.experiments.results import Results
    from remask.reports.tables import PlainTable

_WHAT, _HOW = "What to run", "How to run it"
_SETTINGS = "Settings; the paper's unless given"
_SEVERAL = "; for several values, use `remask sweep`"
_File = Annotated[Path | None, OnCommandLine("FILE")]


class HowToRun(BaseModel):
    """What the commands do besides training."""

    own_code: bool = Field(
        False, description="Import the `module:name` that a file names, too: importing runs it."
    )
    skip_unreadable: bool = Field(
        False,
        description="Skip images that cannot be read, and name them, instead of refusing the "
        "folder.",
    )
    dry_run: bool = Field(False, description="Print what would be run, and how long it takes.")
    output: _File = Field(
        None, description="Write everything about the trials to this file, as JSON."
    )
    store: _File = Field(None, description=STORE)

    def model_post_init(self, _: object) -> None:
        """The user's own function loads the folder, perhaps in another process."""
        if self.skip_unreadable:
            os.environ["REMASK_SKIP_UNREADABLE"] = "1"


SETTINGS = Group(
    option_for(name, field, _WHAT if name in IDENTITY else _SETTINGS, hint=_SEVERAL)
    for name, field in TrialConfig.model_fields.items()
)
RUN_OPTIONS = Group(
    (
        option_for(name, field, _HOW, field.default)
        for name, field in RunOptions.model_fields.items()
        if name != "progress"
    ),
    make=RunOptions,
)
HOW_TO_RUN = Group(
    (
        option_for(name, field, None if name == "store" else _HOW)
        for name, field in HowToRun.model_fields.items()
    ),
    make=HowToRun,
)
_SEEDS = number(int, 1, 1000)
_TRIALS = option(
    "trials", int, opt("N", "Seeds to run. Default: 10.", panel=_WHAT, parser=number(int))
)
Settings = Annotated[dict[str, Any], Group((*SETTINGS.options, _TRIALS))]
Options = Annotated[RunOptions, RUN_OPTIONS]
How = Annotated[HowToRun, HOW_TO_RUN]

_DEMO = """\
Five tasks, two digits each, learnt one after the other with a memory of 20 samples.
Class-IL: which of the ten digits is it? Task-IL: which of its task's two?
A_T: accuracy over all tasks at the end, in percent; higher is better.
F_T: points lost since each task was at its best; lower is better.
MS = masked softmax: while a task is learnt, the logits of all other classes are held
at the value in brackets and get no gradient, so new classes do not push old ones down.

Next: `remask reproduce` lists the paper's experiments.
README.md shows the loss in your own loop."""


def run(
    *,
    config: Annotated[
        Path | None,
        opt("FILE", "A TOML file with any of the settings below.", panel=_WHAT),
    ] = None,
    settings: Settings,
    options: Options,
    how: How,
    printer: Printing,
) -> None:
    """Train trials and print their accuracy and forgetting.

    Settings that are not given are the paper's, for the benchmark, method and buffer. Trials that
    are in the store are not run again, and a run that was stopped continues where it was.

    Example: `remask run --benchmark split-mnist --method derpp --mask none,-1,-inf --buffer 200`
    """
    _start_workers(options, how)
    from remask.experiments.configs import configs_from  # torch: not before it is needed

    configs = configs_from(settings, file=config, own_code=how.own_code)
    results = _train(configs, options, how, printer, source=config)
    printer.result(results.as_json(), *_tables(results, options.save_nets))
    exit_if_any(results.failures)


def sweep(
    *,
    grid: Annotated[Path, arg("GRID.toml", "What to sweep over.")],
    settings: Settings,
    options: Options,
    how: How,
    printer: Printing,
) -> None:
    """Train every combination of the settings in a file.

    The file has settings that all trials share, as for `remask run --config`; under `[grid]` lists
    that are crossed; in each `[[zip]]` lists of one length that go together. Options override what
    all trials share. The trials are stored, resumed and reported like all others. See
    `examples/sweep_masks.toml`.

    With `--validation 0.1`, or `validation = 0.1` in the file, it also names the best cell: by
    training data that was held out, not by the test set.
    """
    _start_workers(options, how)
    from remask.experiments.grids import grid_configs  # torch: not before it is needed

    configs = grid_configs(grid, settings, own_code=how.own_code)
    results = _train(configs, options, how, printer, source=grid)
    best = results.best_by_validation()
    advice = "To choose one of these without looking at the test set, add --validation 0.1."
    printer.result(
        results.as_json() | {"best_by_validation": best},
        *_tables(results, options.save_nets),
        *(best or [advice] * (len(results.cells()) > 1)),
    )
    exit_if_any(results.failures)


def reproduce(
    *,
    experiment: Annotated[
        str | None,
        arg(
            "EXPERIMENT",
            "`main`, `appendix`, `all` and so on; several with commas. Default: list all, with "
            "the time that each takes.",
            autocompletion=EXPERIMENT,
        ),
    ] = None,
    benchmark: Annotated[
        str | None,
        opt(
            "NAMES",
            "The paper's benchmarks, with commas, or `all`. Default: the first one that has the "
            "experiment.",
            panel=_WHAT,
            autocompletion=VALUES["benchmark"],
        ),
    ] = None,
    trials: Annotated[
        int | None,
        opt("N", "Seeds to run. Default: as many as the paper.", panel=_WHAT, parser=_SEEDS),
    ] = None,
    filters: Annotated[dict[str, Any], FILTER_OPTIONS.only("method", "mask", "buffer")],
    options: Options,
    how: Annotated[HowToRun, HOW_TO_RUN.only("dry_run", "store")],
    markdown: Markdown = False,
    printer: Printing,
) -> None:
    """Run a table or figure of the paper, and compare.

    Without EXPERIMENT, it lists what there is to reproduce, and how long each takes. Trials that
    are in the store are not run again, and a run that was stopped continues where it was.

    Example: `remask reproduce main --dry-run`
    """
    if experiment is None:
        _list_experiments(benchmark, trials, options, how, printer)
        raise typer.Exit
    _start_workers(options, how)
    from remask.experiments.reproduction import Reproduction, cell_configs, wanted_cells  # torch

    cells = wanted_cells(experiment, benchmark, filters)
    results = _train(cell_configs(cells, trials), options, how, printer)
    found = Reproduction.of(cells, results)
    shown = [found.compared.table(), *found.compared.summary(), *chain(*found.tables())]
    printer.result(found.as_json(), *([found.markdown()] if markdown else shown))
    printer.note("`remask report` makes a page of it.")
    exit_if_any(results.failures)


def resume(
    *,
    name: Annotated[
        str | None,
        arg("NAME", "The run to continue. Default: every unfinished one.", autocompletion=RUN),
    ] = None,
    # The plan of a run fixes its data and stacks.
    options: Annotated[RunOptions, RUN_OPTIONS.without("again", "data", "stack")],
    how: Annotated[HowToRun, HOW_TO_RUN.only("own_code", "skip_unreadable", "store")],
    printer: Printing,
) -> None:
    """Continue runs that were stopped."""
    _start_workers(options, how)
    from remask.experiments.running import run_trials, runs_to_resume  # torch

    failures, found = [], []
    options = _quietly(options, printer)
    with Store(store_path(how.store)) as store:
        for unfinished in runs_to_resume(store, name, own_code=how.own_code):
            printer.show(f"run {unfinished.name}")
            results = run_trials(store, unfinished.configs, options, run=unfinished)
            printer.show(*_tables(results, options.save_nets))
            found.append(results.as_json() | {"run": unfinished.name})
            failures += results.failures
    printer.result(found)
    exit_if_any(failures)


def demo(
    *,
    trials: Annotated[int, opt("N", "Seeds to run.", panel=_WHAT, parser=_SEEDS)] = 10,
    options: Annotated[RunOptions, RUN_OPTIONS.only("workers")],
    store: StorePath = None,
    printer: Printing,
) -> None:
    """See masked replay forget less, in under a minute.

    It trains on digits that ship with remask, and downloads nothing.
    """
    how = HowToRun(store=store)
    _start_workers(options, how)
    from remask.experiments.pages import write_report  # torch: not before it is needed
    from remask.experiments.reproduction import demo_configs

    results = _train(demo_configs(trials), options, how, printer)
    printer.result(results.as_json(), *_tables(results))
    exit_if_any(results.failures)
    with Store(store_path(store)) as opened:
        page = opened.path.with_suffix(".html")
        written = write_report(opened, page)
    hint = f"Open {page} in a browser to see why: curves, every trial, how to run each again."
    if printer.json:
        printer.note(hint)
    elif not printer.quiet:
        printer.show(_DEMO, hint)
    exit_if_any(written.damaged)


def _list_experiments(
    benchmark: str | None, trials: int | None, options: RunOptions, how: HowToRun, printer: Printer
) -> None:
    """Print what there is to reproduce: the trials, and how long those that lack would take."""
    from remask.experiments.plans import plan_trials  # torch: not before it is needed
    from remask.experiments.reproduction import cell_configs, wanted_cells
    from remask.papers.experiments import EXPERIMENTS
    from remask.reports.tables import PlainTable

    path, cells = store_path(how.store), {}
    for name in EXPERIMENTS:
        with suppress(SettingsError):  # not on this benchmark
            cells[name] = wanted_cells(name, benchmark, {})
    data = {name: ", ".join({cell.benchmark: 0 for cell in own}) for name, own in cells.items()}
    with Store(path, create=False) if path.exists() else nullcontext() as opened:
        plans = {n: plan_trials(opened, cell_configs(cells[n], trials), options) for n in cells}
    columns = ("experiment", "data", "trials", "to run", "time", "what it measures")
    rows = [
        (n, data[n], str(p.trials), str(p.to_run), write_duration(p.seconds), EXPERIMENTS[n])
        for n, p in plans.items()
    ]
    printer.result(
        {name: {"benchmark": data[name], **plan.as_json()} for name, plan in plans.items()},
        PlainTable(columns, rows, left=(*columns[:2], columns[-1]), wrap=True),
        "Run one with `remask reproduce NAME`; --dry-run lists its cells first, and --benchmark "
        "chooses other data of the paper.",
    )


def _start_workers(options: RunOptions, how: HowToRun) -> None:
    """Start loading torch for worker processes, if there will be several."""
    if app.own_process and not how.dry_run and options.on is None and options.processes > 1:
        from remask.experiments.fork_server import start_fork_server

        with suppress(OSError):  # an early start only saves time; a full disk is reported later
            start_fork_server()


def _quietly(options: RunOptions, printer: Printer) -> RunOptions:
    """The options of a run that prints no more than the printer."""
    return options.model_copy(update={"progress": not printer.quiet})


def _train(
    configs: Sequence[TrialConfig],
    options: RunOptions,
    how: HowToRun,
    printer: Printer,
    source: Path | None = None,
) -> "Results":
    """Run the trials and write --output; --dry-run prints what would be run, and exits."""
    path = store_path(how.store)
    if how.dry_run:
        from remask.experiments.plans import plan_trials  # torch: not before it is needed

        with Store(path, create=False) if path.exists() else nullcontext() as opened:
            plan = plan_trials(opened, configs, options)
        printer.result(plan.as_json(), plan.table(), plan.summary())
        raise typer.Exit
    from remask.experiments.running import run_trials  # torch

    with Store(path) as store:
        if how.output is not None:
            check_output(how.output, [path, *([source] if source else [])])
        results = run_trials(store, configs, _quietly(options, printer))
    if how.output is not None:  # first: printing may fail
        export(results, "json", how.output)
    if not results.ran:
        printer.show(f"All {len(results)} trials are in {path} already.")
    return results


def _tables(results: "Results", nets: Path | None = None) -> list["PlainTable | str"]:
    """The table of a run, the masks that were chosen, and the nets that were saved."""
    shown: list[PlainTable | str] = [results.table(), *results.masks_chosen()]
    if nets is None:
        return shown
    from remask.experiments.train import without_net  # torch: not before it is needed

    finished = [record.config for record in results if record.status == "finished"]
    missing = len(without_net(nets, finished))
    shown.append(f"Nets in {nets}: {len(finished) - missing}.")
    if missing:
        shown.append(
            f"Trials without one: {missing}. They were in the store already, which keeps no nets; "
            f"add --again to train them again and save their nets."
        )
    if diverged := sum(record.status == "diverged" for record in results):
        shown.append(f"Diverged trials, without one: {diverged}.")
    return shown
