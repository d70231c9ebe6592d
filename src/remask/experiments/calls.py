"""What the command line can do, each in one call from Python.

Ctrl-C raises KeyboardInterrupt once everything is saved; the same call goes on from there.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from remask.asking import SettingsError, configs_from, grid_configs, several
from remask.config import TrialConfig
from remask.durable import AnyPath, check_output
from remask.errors import Stopped
from remask.experiments.comparing import Reproduction
from remask.experiments.pages import Written, check_trials, write_report
from remask.experiments.reproducing import run_cells, wanted_cells
from remask.experiments.results import Results, resume_run, run_trials
from remask.results import Store, store_path
from remask.runs import Executor, RunOptions, runs_to_resume

AnyStore = Store | AnyPath | None
"""An open store, the path of one, or None for the usual one."""
_Mask = float | str | None


def run(
    benchmark: str | Sequence[str] | None = None,
    method: str | Sequence[str] | None = None,
    *,
    mask: _Mask | Sequence[_Mask] = None,
    buffer: int | Sequence[int] | None = None,
    trials: int | None = None,
    seed: int | None = None,
    configs: Sequence[TrialConfig] | None = None,
    store: AnyStore = None,
    device: str = "cpu",
    workers: int | None = None,
    threads: int = 1,
    stack: int | None = None,
    again: bool = False,
    data: AnyPath | None = None,
    checkpoint_seconds: float = 60.0,
    save_nets: AnyPath | None = None,
    progress: bool | None = None,
    executor: Executor | None = None,
    **settings: Any,
) -> Results:
    """Run trials, store each, and return what they have shown.

    Which: every combination of `benchmark` (split-digits), `method` (er), `mask` (what the method's
    name implies) and `buffer` (the usual one), each one value or a list, with `trials` (10) seeds
    from `seed` (0) on. Any other setting of `TrialConfig` may be given by name; what is not given
    is the published one. Or exactly the `configs`.

    What the `store` has is not run again, unless `again`; what was stopped goes on. Names of code
    of one's own, `module:name`, are imported. `RunOptions` describes the options;
    `progress=None` shows bars on a terminal, True elsewhere also a line per cell, False nothing.
    `executor` says where: by default in this process, or in worker processes if there are several.
    """
    how = RunOptions(
        device=device,
        workers=workers,
        threads=threads,
        stack=stack,
        again=again,
        data=data,
        checkpoint_seconds=checkpoint_seconds,
        save_nets=save_nets,
        progress=progress,
    )
    asked = {
        **{"benchmark": benchmark, "method": method, "mask": mask, "buffer": buffer},
        **{"trials": trials, "seed": seed},
        **settings,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if configs is None:
        configs = _combinations(given)
    elif given:
        raise SettingsError(
            f"configs say which trials to run: leave out {', '.join(given)}, or the configs"
        )
    _check_importable(configs)
    with _opened(store) as opened, _interruptible():
        return run_trials(opened, configs, how, executor=executor)


def sweep(
    grid: AnyPath | Mapping[str, Any],
    *,
    store: AnyStore = None,
    own_code: bool | None = None,
    **how: Any,
) -> Results:
    """Run every combination of settings of a grid: a TOML file, or a dict with the same in it.

    `{"method": "derpp", "grid": {"mask": [None, -1.0]}, "zip": [{"buffer": [20, 50], ...}]}`. What
    a file names of code of one's own is imported only with `own_code=True`. How, as for `run`.
    """
    trusted = isinstance(grid, Mapping) if own_code is None else own_code
    configs = grid_configs(grid, own_code=trusted)
    _check_importable(configs)
    with _opened(store) as opened, _interruptible():
        return run_trials(opened, configs, RunOptions(**how))


def reproduce(
    experiment: str | Sequence[str] = "main",
    *,
    benchmark: str | Sequence[str] = "split-mnist",
    method: str | Sequence[str] | None = None,
    mask: _Mask | Sequence[_Mask] = None,
    buffer: int | Sequence[int] | None = None,
    trials: int | None = None,
    store: AnyStore = None,
    **how: Any,
) -> Reproduction:
    """Run what is missing of an experiment of the paper, and put ours beside it.

    Experiments: main, low-buffer, ablation, confidence, appendix, all. `method`, `mask` and
    `buffer` choose among its cells. How, as for `run`.
    """
    asked = {"method": method, "mask": mask, "buffer": buffer}
    filters = {name: several(value) for name, value in asked.items() if value is not None}
    cells = wanted_cells(experiment, benchmark, filters)
    with _opened(store) as opened, _interruptible():
        return run_cells(opened, cells, trials, RunOptions(**how))


def resume(
    name: str | None = None, *, store: AnyStore = None, own_code: bool = False, **how: Any
) -> list[Results]:
    """Go on with the named run, or with every unfinished one, and return the results of each.

    What their plans name of code of one's own is imported only with `own_code=True`.
    """
    with _opened(store) as opened, _interruptible():
        runs = runs_to_resume(opened, name, own_code=own_code)
        return [resume_run(opened, unfinished, RunOptions(**how)) for unfinished in runs]


def report(
    target: AnyPath = "remask-report.html",
    *,
    store: AnyStore = None,
    figures: AnyPath | None = None,
    **filters: Any,
) -> Written:
    """Write the store, or what passes the filters, as one HTML page; with `figures`, draw those.

    Filters: benchmark, method, mask, buffer, seed, status, since, hash; a list lets any through.
    """
    check_output(Path(target))
    with _opened(store, create=False) as opened:
        check_trials(opened, filters)
        return write_report(opened, target, filters, figures=figures)


def _combinations(given: Mapping[str, Any]) -> list[TrialConfig]:
    benchmarks = several(given.get("benchmark", "split-digits"))
    asked = [configs_from({**given, "benchmark": benchmark}) for benchmark in benchmarks]
    return [config for configs in asked for config in configs]


def _check_importable(configs: Sequence[TrialConfig]) -> None:
    """Refuse what worker processes could not find: they run no script and no notebook."""
    for config in configs:
        for name in (config.benchmark, config.method, config.net):
            if name.startswith("__main__:"):
                raise SettingsError(
                    f"{name!r} is in the script or notebook itself, where worker processes cannot "
                    f"find it: put it into a module, a file of its own, and say module:name"
                )


@contextmanager
def _opened(store: AnyStore, *, create: bool = True) -> Iterator[Store]:
    if isinstance(store, Store):
        manager: Any = nullcontext(store)
    else:
        manager = Store(store_path(store), create=create)
    with manager as opened:
        yield opened


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn a stop that Ctrl-C asked for into what Python raises of Ctrl-C."""
    try:
        yield
    except Stopped as stopped:
        if stopped.exit_code != 128 + signal.SIGINT:
            raise
        saved = "everything is saved, and the same call goes on"
        if stopped.unsaved:
            saved = "not everything could be saved: " + "; ".join(stopped.unsaved)
        raise KeyboardInterrupt(f"{stopped}; {saved}") from stopped
