"""The public calls: what the commands of the same names do, from Python.

Ctrl-C raises KeyboardInterrupt once everything is saved; the same call continues from there.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.errors import SettingsError, Stopped, did_you_mean
from remask.experiments.configs import combine, configs_from, several, with_names
from remask.experiments.executors import Executor
from remask.experiments.grids import grid_configs
from remask.experiments.options import RunOptions
from remask.experiments.pages import Written, write_report
from remask.experiments.reproduction import Reproduction, cell_configs, wanted_cells
from remask.experiments.results import Results
from remask.experiments.running import run_trials, runs_to_resume
from remask.files import AnyPath
from remask.methods import Method
from remask.store.database import store_path
from remask.store.store import Store

AnyStore = Store | AnyPath | None
"""An open store, the path of one, or None for the default one."""
AnyBenchmark = str | Benchmark
AnyMethod = str | type[Method]
_Mask = float | str | None


def run(
    benchmark: AnyBenchmark | Sequence[AnyBenchmark] | None = None,
    method: AnyMethod | Sequence[AnyMethod] | None = None,
    *,
    mask: _Mask | Sequence[_Mask] = None,
    buffer: int | Sequence[int] | None = None,
    trials: int | None = None,
    seed: int | None = None,
    configs: Sequence[TrialConfig] | None = None,
    config_file: AnyPath | None = None,
    own_code: bool = False,
    store: AnyStore = None,
    executor: Executor | None = None,
    **settings: Any,
) -> Results:
    """Run trials, store each, and return their results.

    Runs every combination of `benchmark` (default: split-digits), `method` (er), `mask` (implied by
    the method's name) and `buffer` (the usual one), each one value or a list, with `trials` (10)
    seeds from `seed` (0) on. Any other field of `TrialConfig` may be given by name; settings that
    are given neither here nor in the TOML `config_file` have their published values. Or give
    exactly the `configs`.

    Trials in the `store` are not run again, unless `again=True`; a stopped run continues. Any field
    of `RunOptions` may be given by name, such as `workers=2`. By default trials run in this
    process, or in `workers` processes; an `executor` runs them elsewhere.

    Your own code is given as `module:name` or as the object itself: a `Benchmark`, a `Method`, or
    for `net` a function or class that builds one. Worker processes must find them, so a method or
    net must be defined in a module, and a benchmark is copied to the data folder. Code that only
    the file names is imported only with `own_code=True`.
    """
    chosen, options = _divided(settings)
    named = {
        **{"benchmark": benchmark, "method": method, "mask": mask, "buffer": buffer},
        **{"trials": trials, "seed": seed},
    }
    given = {name: value for name, value in named.items() if value is not None} | chosen
    if configs is None:
        configs = configs_from(given, file=config_file, own_code=own_code)
    elif given or config_file is not None:
        other = ", ".join(given) or "config_file"
        raise SettingsError(f"configs define the trials: leave out {other}, or the configs")
    _check_importable(configs)
    with _opened(store) as opened:
        return run_trials(opened, configs, options, executor)


def sweep(
    grid: AnyPath | Mapping[str, Any],
    *,
    store: AnyStore = None,
    own_code: bool | None = None,
    executor: Executor | None = None,
    **settings: Any,
) -> Results:
    """Run every combination of settings of a grid: a TOML file, or a dict of the same form.

    `{"method": "derpp", "grid": {"mask": [None, -1.0]}, "zip": [{"buffer": [20, 50], ...}]}`. Any
    field of `TrialConfig` may be given by name and overrides the grid's shared settings. Options
    and `executor` are those of `run`. Your own code that a file names is imported only with
    `own_code=True`.
    """
    chosen, options = _divided(settings)
    trusted = isinstance(grid, Mapping) if own_code is None else own_code
    configs = grid_configs(grid, chosen, own_code=trusted)
    _check_importable(configs)
    with _opened(store) as opened:
        return run_trials(opened, configs, options, executor)


def reproduce(
    experiment: str | Sequence[str] = "main",
    *,
    benchmark: str | Sequence[str] | None = None,
    method: str | Sequence[str] | None = None,
    mask: _Mask | Sequence[_Mask] = None,
    buffer: int | Sequence[int] | None = None,
    trials: int | None = None,
    store: AnyStore = None,
    executor: Executor | None = None,
    **options: Any,
) -> Reproduction:
    """Run the missing trials of an experiment of the paper, and compare with its figures.

    Experiments: main, low-buffer, ablation, confidence, appendix, all; and gap, online,
    online-small and fashion, which the paper does not have. The default benchmark is the first one
    that has the experiment. `method`, `mask` and `buffer` select cells. Options and `executor` are
    those of `run`.
    """
    asked = {"method": method, "mask": mask, "buffer": buffer}
    filters = {name: several(value) for name, value in asked.items() if value is not None}
    cells = wanted_cells(experiment, benchmark, filters)
    configs = cell_configs(cells, trials)
    with _opened(store) as opened:
        results = run_trials(opened, configs, RunOptions(**options), executor)
        return Reproduction.of(cells, results)


def resume(
    name: str | None = None,
    *,
    store: AnyStore = None,
    own_code: bool = False,
    executor: Executor | None = None,
    **options: Any,
) -> list[Results]:
    """Continue the named run, or every unfinished one, and return the results of each.

    Your own code that their plans name is imported only with `own_code=True`. Options and
    `executor` are those of `run`.
    """
    how = RunOptions(**options)
    with _opened(store) as opened:
        runs = runs_to_resume(opened, name, own_code=own_code)
        return [run_trials(opened, run.configs, how, executor, run=run) for run in runs]


def report(
    target: AnyPath = "remask-report.html",
    *,
    store: AnyStore = None,
    figures: AnyPath | None = None,
    paper: bool = False,
    **filters: Any,
) -> Written:
    """Write the trials that pass the filters as one HTML page; with `figures`, also draw those.

    With `paper`, the page also lists what was not run of the paper. `remask.store.FILTERS`
    describes the filters; each takes a value or a list of values.
    """
    with _store(store, create=False) as opened:
        return write_report(opened, target, filters, figures=figures, paper=paper)


def settings(
    benchmark: AnyBenchmark,
    method: AnyMethod,
    buffer: int | None = None,
    mask: _Mask = None,
    *,
    seed: int = 0,
    **changes: Any,
) -> TrialConfig:
    """The published settings of a trial, with any of them changed.

    `buffer=None` is the usual one, `mask=None` what the method's name implies: none for `er`, -inf
    for `mser`.
    """
    asked = {"benchmark": benchmark, "method": method, "buffer": buffer, "mask": mask}
    given = {name: value for name, value in asked.items() if value is not None}
    configs = combine(with_names({**given, "seed": seed, "trials": 1, **changes}))
    if len(configs) > 1:
        raise SettingsError("give one benchmark, method, mask and buffer, and one value per weight")
    return configs[0]


def _divided(settings: Mapping[str, Any]) -> tuple[dict[str, Any], RunOptions]:
    """Separate the settings of trials from the options of the run; drops settings of None."""
    fields, options = TrialConfig.model_fields, RunOptions.model_fields
    known = [*fields, *options, "trials"]
    for name in settings:
        if name not in known:
            hint = did_you_mean(name, known) or "; `remask run --help` lists them"
            raise SettingsError(f"there is no setting {name!r}{hint}")
    chosen = {n: v for n, v in settings.items() if n not in options and v is not None}
    return chosen, RunOptions(**{n: v for n, v in settings.items() if n in options})


def _check_importable(configs: Sequence[TrialConfig]) -> None:
    """Refuse code in a script or notebook, which worker processes cannot import."""
    for name in {name for config in configs for name in config.code}:
        if name.startswith("__main__:"):
            raise SettingsError(
                f"{name!r} is defined in the script or notebook, which worker processes cannot "
                f"import: move it to a module"
            )


def _store(store: AnyStore, *, create: bool = True) -> AbstractContextManager[Store]:
    if isinstance(store, Store):
        return nullcontext(store)
    return Store(store_path(store), create=create)


@contextmanager
def _opened(store: AnyStore) -> Iterator[Store]:
    """Open a store for a run; a stop by Ctrl-C becomes KeyboardInterrupt."""
    try:
        with _store(store) as opened:
            yield opened
    except Stopped as stopped:
        if stopped.exit_code != 128 + signal.SIGINT:
            raise
        raise KeyboardInterrupt(f"{stopped}; the same call continues") from stopped
