"""What `run`, `sweep`, `reproduce` and `demo` have in common: plan or run trials, and print."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from remask.cli.console import output
from remask.cli.printer import Printer
from remask.cli.printing import leave_if_failed, print_results, say_if_all_were_stored
from remask.cli.shapes import plan_shape, results_shape
from remask.config import TrialConfig
from remask.durable import check_output
from remask.results import Store, export, store_path
from remask.runs.options import RunOptions


def run_and_print(
    store: Store,
    configs: Sequence[TrialConfig],
    options: RunOptions,
    printer: Printer,
    target: Path | None = None,
    *,
    source: Path | None = None,
    choose: bool = False,
) -> None:
    """Run what the store lacks of these trials, then print the table of all of them.

    With `target`, also write them to that file, unless it is the store or the `source` of the
    settings. With `choose`, also print which cell is best by validation.
    """
    from remask.experiments import run_trials  # torch: not before it is needed

    if target is not None:
        check_output(target, [store.path, *([source] if source else [])])
    results = run_trials(store, configs, printer.applied_to(options))
    if target is not None:  # before anything is printed: nobody may be there to read it
        export(results, "json", target)
    if printer.json:
        best = {"best_by_validation": results.best_by_validation()} if choose else {}
        printer.result(results_shape(results, **best))
    else:
        say_if_all_were_stored(results, store.path)
        print_results(results, options.save_nets, choose=choose)
    leave_if_failed(results.failures)


def print_plan(
    store: Path | None, configs: Sequence[TrialConfig], options: RunOptions, printer: Printer
) -> None:
    """Print what would be run, and leave everything as it is: a store that is not there, too."""
    from remask.experiments import plan_trials  # torch: not before it is needed

    path = store_path(store)
    with Store(path, create=False) if path.exists() else nullcontext() as opened:
        planned = plan_trials(opened, configs, options)
    if printer.json:
        printer.result(plan_shape(planned))
    else:
        output.print(planned.table())
        printer.result(None, planned.summary())
