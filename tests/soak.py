"""A soak: back-to-back runs with random kills, for as long as you like.

    python -m tests.soak --minutes 30

Two things go on in turn. Runs in this very process, one after the other, while its memory is
watched: it must not grow. And runs in processes of their own, killed with SIGKILL at random moments
and started again until they are done. Every trial must end up in the store once, and those that
were killed must equal a run in this process, number for number.
"""

import argparse
import gc
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from remask.asking import trial_configs
from remask.config import TrialConfig
from remask.launch import Options, StopRequest, continue_run, plan_run
from remask.methods import METHODS
from remask.store import Store, config_hash
from tests.command_line import start

_METHODS = tuple(METHODS)
_WARM_UP = 0.2
_TRIALS = 4
_EPOCHS = 10


def main() -> int:
    """Soak; exits with 1 if anything was lost, doubled or changed, or if memory grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    source = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as name:
        return _soak(Path(name), chosen.minutes * 60, source)


def _soak(folder: Path, seconds: float, source: random.Random) -> int:
    began = time.monotonic()
    memory: list[tuple[float, float]] = []
    wanted: set[str] = set()
    kills = runs = changed = 0
    with Store(folder / "here.db") as here:
        while time.monotonic() - began < seconds:
            configs = _configs(_METHODS[runs % len(_METHODS)], first_seed=runs * _TRIALS)
            _run_here(here, configs)
            gc.collect()
            memory.append((time.monotonic() - began, _resident_mib()))
            if runs % 3 == 0:  # the same trials once more, in processes that are killed
                kills += _run_and_kill(folder / "killed.db", configs, source)
                wanted |= {config_hash(config) for config in configs}
                changed += _differences(here, folder / "killed.db", configs)
            runs += 1
            print(f"{time.monotonic() - began:6.0f} s  {runs} runs  {kills} kills  "
                  f"{memory[-1][1]:.0f} MiB", flush=True)  # fmt: skip
        stored = [record.config_hash for record in here.records()]
    with Store(folder / "killed.db") as killed:
        survived = [record.config_hash for record in killed.records()]
    lost = runs * _TRIALS - len(set(stored)) + len(wanted - set(survived))
    doubled = len(stored) - len(set(stored)) + len(survived) - len(set(survived))
    settled = [mib for at, mib in memory if at > _WARM_UP * seconds]
    tenth = max(len(settled) // 10, 1)
    growth = statistics.median(settled[-tenth:]) / statistics.median(settled[:tenth]) - 1
    print(f"runs {runs}, trials {runs * _TRIALS}, kills {kills}, lost {lost}, doubled {doubled}, "
          f"changed {changed}, memory growth after warm-up {growth:+.1%}")  # fmt: skip
    return int(lost != 0 or doubled != 0 or changed != 0 or growth > 0.05)


def _configs(method: str, first_seed: int) -> list[TrialConfig]:
    return trial_configs(
        benchmark="split-digits",
        method=method,
        masks=[None],
        seeds=range(first_seed, first_seed + _TRIALS),
        overrides={"epochs": _EPOCHS},
    )


def _run_here(store: Store, configs: list[TrialConfig]) -> None:
    run = plan_run(store, configs, workers=1, largest_stack=lambda _: _TRIALS, again=False)
    assert run is not None
    for _ in continue_run(store, run, workers=1, options=Options(), stop=StopRequest()):
        pass


def _run_and_kill(store: Path, configs: list[TrialConfig], source: random.Random) -> int:
    """Start and kill until done; how many kills it took."""
    first = configs[0]
    command = (
        "run", "--benchmark", first.benchmark, "--method", first.method, "--seed", str(first.seed),
        "--trials", str(_TRIALS), "--epochs", str(_EPOCHS), "--workers", "2",
        "--checkpoint-seconds", "0.1",
    )  # fmt: skip
    kills = 0
    while True:
        process = start(*command, store=store)
        try:
            # The first seconds go to imports; each try gets longer, so that there is an end.
            process.communicate(timeout=source.uniform(3.0, 6.0) + kills)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            continue
        assert process.returncode == 0, process.returncode
        return kills


def _differences(here: Store, other: Path, configs: list[TrialConfig]) -> int:
    """How many of the trials ended with other numbers than in this process."""
    with Store(other) as store:
        pairs = [(here.get(config_hash(c)), store.get(config_hash(c))) for c in configs]
    return sum(
        a is None or b is None or (a.class_il, a.confidence) != (b.class_il, b.confidence)
        for a, b in pairs
    )


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


if __name__ == "__main__":
    sys.exit(main())
