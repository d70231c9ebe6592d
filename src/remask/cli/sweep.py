"""`remask sweep`: every combination of the settings in a file."""

from remask.cli import options as o
from remask.cli.run import run_and_print


def sweep(
    grid: o.GridFile,
    validation: o.Validation = None,
    data: o.Data = None,
    device: o.Device = "cpu",
    workers: o.Workers = None,
    threads: o.Threads = 1,
    stack: o.Stack = None,
    again: o.Again = False,
    own_code: o.OwnCode = False,
    skip_unreadable: o.SkipUnreadable = False,
    checkpoint_seconds: o.CheckpointSeconds = 60.0,
    json: o.JsonFile = None,
    store: o.StorePath = None,
) -> None:
    """Train every combination of settings that a file asks for, and print a table.

    The file has settings that all trials share, as for `remask run --config`; under `[grid]` lists
    that are crossed; in each `[[zip]]` lists of one length that go together. Its trials are
    stored, resumed and reported like all others. See `examples/sweep_masks.toml`.

    With `--validation 0.1`, or `validation = 0.1` in the file, it also names the best cell: by
    training data that was held out, not by the test set.
    """
    from remask.planning import grid_configs
    from remask.runs.options import RunOptions

    configs = grid_configs(grid, own_code=own_code, validation=validation)
    how = RunOptions(
        device=device,
        workers=workers,
        threads=threads,
        stack=stack,
        again=again,
        data=data,
        checkpoint_seconds=checkpoint_seconds,
        progress=True,
    )
    with o.open_store(store) as opened:
        run_and_print(opened, configs, how, json, choose=True)
