"""What the command line can do, each in one call from Python.

Ctrl-C raises KeyboardInterrupt once everything is saved; the same call goes on from there.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.durable import AnyPath, check_output
from remask.errors import SettingsError, Stopped
from remask.experiments.comparing import Reproduction
from remask.experiments.pages import Written, check_trials, write_report
from remask.experiments.reproducing import run_cells, wanted_cells
from remask.experiments.results import Results, resume_run, run_trials
from remask.methods import Method
from remask.names import did_you_mean
from remask.planning import configs_from, grid_configs, several
from remask.results import Store, store_path
from remask.runs import Executor, RunOptions, runs_to_resume

AnyStore = Store | AnyPath | None
"""An open store, the path of one, or None for the usual one."""
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
    """Run trials, store each, and return what they have shown.

    Which: every combination of `benchmark` (split-digits), `method` (er), `mask` (what the method's
    name implies) and `buffer` (the usual one), each one value or a list, with `trials` (10) seeds
    from `seed` (0) on. Any other field of `TrialConfig` may be given by name; what is not given,
    here or in the TOML `config_file`, is the published one. Or exactly the `configs`.

    What the `store` has is not run again, unless `again=True`; what was stopped goes on. How: any
    field of `RunOptions` may be given by name, such as `workers=2`. `executor` says where: by
    default in this process, or in worker processes if there are several.

    Your own code is given as `module:name` or as the object itself: a `Benchmark`, a `Method`, and
    for `net` a function or class that builds one. A method or net must be defined in a module, and
    a benchmark is copied to the data folder, so that worker processes find them. Code that only the
    file names is imported only with `own_code=True`.
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
        besides = [*given, *(["config_file"] if config_file is not None else [])]
        raise SettingsError(
            f"configs say which trials to run: leave out {', '.join(besides)}, or the configs"
        )
    _check_importable(configs)
    with _opened(store) as opened, _interruptible():
        return run_trials(opened, configs, options, executor=executor)


def sweep(
    grid: AnyPath | Mapping[str, Any],
    *,
    store: AnyStore = None,
    own_code: bool | None = None,
    executor: Executor | None = None,
    **settings: Any,
) -> Results:
    """Run every combination of settings of a grid: a TOML file, or a dict with the same in it.

    `{"method": "derpp", "grid": {"mask": [None, -1.0]}, "zip": [{"buffer": [20, 50], ...}]}`. Any
    field of `TrialConfig` may be given by name, and wins over what all trials share in the grid;
    any of `RunOptions` says how, and `executor` where, as for `run`. Your own code that a file
    names is imported only with `own_code=True`.
    """
    chosen, options = _divided(settings)
    trusted = isinstance(grid, Mapping) if own_code is None else own_code
    configs = grid_configs(grid, chosen, own_code=trusted)
    _check_importable(configs)
    with _opened(store) as opened, _interruptible():
        return run_trials(opened, configs, options, executor=executor)


def reproduce(
    experiment: str | Sequence[str] = "main",
    *,
    benchmark: str | Sequence[str] = "split-mnist",
    method: str | Sequence[str] | None = None,
    mask: _Mask | Sequence[_Mask] = None,
    buffer: int | Sequence[int] | None = None,
    trials: int | None = None,
    store: AnyStore = None,
    executor: Executor | None = None,
    **options: Any,
) -> Reproduction:
    """Run what is missing of an experiment of the paper, and put ours beside it.

    Experiments: main, low-buffer, ablation, confidence, appendix, all; and gap, which the paper
    does not have. `method`, `mask` and `buffer` choose among its cells. Any field of `RunOptions`
    may be given by name; `executor` says where, as for `run`.
    """
    asked = {"method": method, "mask": mask, "buffer": buffer}
    filters = {name: several(value) for name, value in asked.items() if value is not None}
    cells = wanted_cells(experiment, benchmark, filters)
    with _opened(store) as opened, _interruptible():
        return run_cells(opened, cells, trials, RunOptions(**options), executor=executor)


def resume(
    name: str | None = None,
    *,
    store: AnyStore = None,
    own_code: bool = False,
    executor: Executor | None = None,
    **options: Any,
) -> list[Results]:
    """Go on with the named run, or with every unfinished one, and return the results of each.

    Your own code that their plans name is imported only with `own_code=True`. Any field of
    `RunOptions` may be given by name; `executor` says where, as for `run`.
    """
    how = RunOptions(**options)
    with _opened(store) as opened, _interruptible():
        runs = runs_to_resume(opened, name, own_code=own_code)
        return [resume_run(opened, unfinished, how, executor=executor) for unfinished in runs]


def report(
    target: AnyPath = "remask-report.html",
    *,
    store: AnyStore = None,
    figures: AnyPath | None = None,
    paper: bool = False,
    **filters: Any,
) -> Written:
    """Write the store, or what passes the filters, as one HTML page; with `figures`, draw those.

    With `paper`, the page also lists what of the paper was not run.
    `remask.results.FILTERS` describes the filters; a list of values lets any of them through.
    """
    with _opened(store, create=False) as opened:
        check_output(Path(target), [opened.path])
        check_trials(opened, filters)
        return write_report(opened, target, filters, figures=figures, paper=paper)


def _divided(settings: Mapping[str, Any]) -> tuple[dict[str, Any], RunOptions]:
    """Separate the settings of trials from the options of the run; None means not given."""
    fields, options = TrialConfig.model_fields, RunOptions.model_fields
    known = [*fields, *options, "trials"]
    for name in settings:
        if name not in known:
            raise SettingsError(f"there is no setting {name!r}{did_you_mean(name, known)}")
    chosen = {n: v for n, v in settings.items() if n not in options and v is not None}
    return chosen, RunOptions(**{n: v for n, v in settings.items() if n in options})


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
    """Turn a stop by Ctrl-C into the exception that Python raises for it."""
    try:
        yield
    except Stopped as stopped:
        if stopped.exit_code != 128 + signal.SIGINT:
            raise
        saved = "everything is saved, and the same call goes on"
        if stopped.unsaved:
            saved = "not everything could be saved: " + "; ".join(stopped.unsaved)
        raise KeyboardInterrupt(f"{stopped}; {saved}") from stopped
