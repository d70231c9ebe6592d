"""Compare ratios of speed with their bounds; exits with 1 if one is more than 15 % worse.

Run with ``python benchmarks/check.py``, or ``make bench-check``. Ratios of CPU time in one run
depend little on how busy the machine is, but they do depend on the processor.
"""

from functools import partial

from loss_cost import ratios
from method_cost import cost
from speed import contest, random_benchmark
from timing import in_turns, one_thread

from remask.machine import keep_freed_memory

BOUNDS = {
    "one trial: times faster than a plain loop": 6.0,
    "ten: times faster than a plain loop": 10.0,
    "without numba, ten: times faster than a plain loop": 2.6,
    "MSDER++ / DER++": 1.02,
    "compiled loss with a mask / F.cross_entropy": 1.2,
    "A-GEM / SGD": 3.2,
    "HAL / SGD": 5.0,
    "GSS / SGD": 3.3,
    "PNN / SGD": 3.8,
    "GEM / SGD": 8.1,
}
"""At least this for "times faster", at most this for the others."""
METHODS = {"sgd": "SGD", "agem": "A-GEM", "hal": "HAL", "gss": "GSS", "pnn": "PNN", "gem": "GEM"}
TOLERANCE = 1.15


def measured() -> dict[str, float]:
    """All ratios by name."""
    benchmark = random_benchmark(1, 28, 28, per_class=300)
    times = contest(benchmark, 5, 10)
    one, ten = times["remask, one trial"], times["remask, ten"]
    found = {
        "one trial: times faster than a plain loop": times["plain PyTorch loop"] / one,
        "ten: times faster than a plain loop": times["plain PyTorch loop"] / ten,
        "without numba, ten: times faster than a plain loop": times["plain PyTorch loop"]
        / times["remask without numba, ten"],
        "MSDER++ / DER++": times["remask, ten with a mask"] / ten,
    }
    loss = ratios(128, 1000, 100, 30, rounds=10, compiled=True)
    found["compiled loss with a mask / F.cross_entropy"] = loss["mask [K], unchecked"]
    methods = in_turns({name: partial(cost, name, benchmark) for name in METHODS}, 3)
    sgd = methods.pop("sgd")
    return found | {f"{METHODS[name]} / SGD": step / sgd for name, step in methods.items()}


def main() -> None:
    keep_freed_memory()  # as worker processes do
    missed = []
    with one_thread():
        for name, value in measured().items():
            bound, faster = BOUNDS[name], "faster" in name
            kept = value >= bound / TOLERANCE if faster else value <= bound * TOLERANCE
            side, verdict = "at least" if faster else "at most", "kept" if kept else "MISSED"
            print(f"{name:52s} {value:5.2f}  {side:8s} {bound:5.2f}  {verdict}")
            missed += [] if kept else [name]
    if missed:
        raise SystemExit(f"more than 15 % worse than its bound: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
