"""What `run`, `sweep` and `demo` have in common: run the trials, then print their table."""

from collections.abc import Sequence
from pathlib import Path

from remask.cli.printing import leave_if_failed, print_results, say_if_all_were_stored
from remask.config import TrialConfig
from remask.durable import check_output
from remask.results import Store, export
from remask.runs.options import RunOptions


def run_and_print(
    store: Store,
    configs: Sequence[TrialConfig],
    options: RunOptions,
    json: Path | None = None,
    *,
    choose: bool = False,
) -> None:
    """Run what the store lacks of these trials, then print the table of all of them.

    With `choose`, also say which cell is best by validation.
    """
    from remask.experiments import run_trials  # torch: not before it is needed

    if json is not None:
        check_output(json)
    results = run_trials(store, configs, options, remedy="--again runs")
    if json is not None:  # before anything is printed: nobody may be there to read it
        export(results, "json", json)
    say_if_all_were_stored(results, store.path)
    print_results(results, options.save_nets, choose=choose)
    leave_if_failed(results.failures)
