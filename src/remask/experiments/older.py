"""Results of own code that has changed since."""

from collections.abc import Sequence
from pathlib import Path

from remask.config import TrialConfig
from remask.console import PlainConsole
from remask.own_code import names_own_code
from remask.own_sources import Source, find_source
from remask.results import Store, config_hash


def say_what_is_older(
    store: Store, configs: Sequence[TrialConfig], remedy: str, console: PlainConsole
) -> None:
    """Say how many of these trials the store has of another version of the user's own code.

    `remedy` is what runs them anew.
    """
    sources: dict[str, Source | None] = {}
    older: list[set[str]] = []
    for config in dict.fromkeys(configs):
        if not any(map(names_own_code, (config.benchmark, config.method, config.net))):
            continue
        record = store.get(config_hash(config))
        if record is None or record.status == "failed":  # which is run again anyway
            continue
        for module in record.own_code.keys() - sources.keys():
            sources[module] = find_source(module)
        changed = {
            _written(source.file)
            for module, fingerprint in record.own_code.items()
            if (source := sources[module]) is not None and source.fingerprint != fingerprint
        }
        if changed:
            older.append(changed)
    if older:
        files = " and ".join(sorted(set().union(*older)))
        trials, them = ("trials are", "them") if len(older) > 1 else ("trial is", "it")
        console.print(
            f"{len(older)} {trials} of an older version of {files}; {remedy} {them} anew",
            style="yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def _written(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
