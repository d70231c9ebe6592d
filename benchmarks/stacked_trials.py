"""Measure stacks of 1, 10 and 40 DER++ trials against a textbook loop and bare matmuls.

Run with ``python benchmarks/stacked_trials.py``. One process and one thread; CPU time; medians over
rounds in which the contestants take turns (`contest.py`).

- step: the engine, all trials at once.
- textbook: plain PyTorch, one trial after the other (`textbook_loop.py`).
- matmuls: the matrix products of the step alone (`bare_matmuls.py`).
"""

import argparse
from collections.abc import Sequence

from contest import BLOCK, complete, contest, split_mnist
from timing import one_thread

STACKS = (1, 10, 40)
FULL_TRIALS = 10


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--blocks-per-task", type=int, default=3, help=f"of {BLOCK} steps each")
    parser.add_argument(
        "--textbook-trials",
        type=int,
        default=2,
        help="how many are timed, at least 1; the others are taken to be as fast",
    )
    parser.add_argument(
        "--full", action="store_true", help="also time complete runs, evaluation included"
    )
    options = parser.parse_args(arguments)
    with one_thread():
        benchmark, source = split_mnist()
        print(f"DER++ on {source}, buffer 200, replay 2 x 10, batch 10, MLP 784-100-100-10")
        print("1 thread, CPU time, without evaluation; ms per step of all trials")
        print()
        print("   S     step  textbook  matmuls   textbook / step   step / matmuls", flush=True)
        for trials in STACKS:
            found = contest(
                benchmark, options.blocks_per_task, trials, min(trials, options.textbook_trials)
            )
            print(
                f"{trials:4d} {found['stacked_ms']:8.3f} {found['textbook_ms']:9.3f} "
                f"{found['matmuls_ms']:8.3f} {found['textbook_over_stacked']:17.2f} "
                f"{found['stacked_over_matmuls']:16.2f}",
                flush=True,
            )
        if options.full:
            found = complete(benchmark, FULL_TRIALS, options.textbook_trials)
            print()
            print(
                f"complete runs of {found['full_steps']:.0f} steps, evaluation included: "
                f"{FULL_TRIALS} stacked trials and {options.textbook_trials} textbook trials"
            )
            for name in ("stacked", "textbook"):
                print(
                    f"{name:10s} {found[f'full_{name}_seconds_per_trial']:8.2f} s per trial   "
                    f"Class-IL accuracy {found[f'full_{name}_accuracy']:.1f}"
                )
            print(f"textbook / stacked  {found['full_textbook_over_stacked']:5.2f}")


if __name__ == "__main__":
    main()
