"""Compare the ratios of speed with their bounds; exits with 1 if one is more than 15 % worse.

Run with ``python benchmarks/check.py``, or ``make bench-check``. Bounds are what was measured on a
quiet machine; the tolerance is for machines that are not. How fast a processor multiplies and how
fast it does everything else differ, and so do the bounds.
"""

import statistics
from pathlib import Path

from contest import contest, split_mnist
from mask_cost import mask_ratio
from method_cost import cost, random_digits
from timing import one_thread

from remask.machine import keep_freed_memory

BOUNDS = {
    "AuthenticAMD, family 26": {
        "S=1: textbook / step": 2.15,
        "S=10: textbook / step": 4.6,
        "S=40: textbook / step": 4.6,
        "S=10: step / matmuls": 1.24,
        "S=40: step / matmuls": 1.06,
        "MSDER++ / DER++, 10 classes": 1.01,
        "MSDER++ / DER++, 1,000 classes": 1.03,
        "A-GEM / SGD": 2.9,
        "HAL / SGD": 3.1,
        "GSS / SGD": 4.4,
        "PNN / SGD": 5.4,
        "GEM / SGD": 12.7,
    },
    "any other": {  # those of the first AMD in docs/performance.md; an Intel Xeon missed two
        "S=1: textbook / step": 2.3,
        "S=10: textbook / step": 5.5,
        "S=40: textbook / step": 5.2,
        "S=10: step / matmuls": 1.40,
        "S=40: step / matmuls": 1.11,
        "MSDER++ / DER++, 10 classes": 1.01,
        "MSDER++ / DER++, 1,000 classes": 1.03,
    },
}
"""By the processor; a ratio over a step is worse when it is lower, all others when higher."""
METHODS = {"agem": "A-GEM", "hal": "HAL", "gss": "GSS", "pnn": "PNN", "gem": "GEM"}
TOLERANCE = 1.15


def processor() -> str:
    """The key of this processor's bounds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "any other"
    said = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    name = f"{said.get('vendor_id')}, family {said.get('cpu family')}"
    return name if name in BOUNDS else "any other"


def measured() -> dict[str, float]:
    """Every ratio that has a bound."""
    found = {}
    benchmark, _ = split_mnist()
    for trials in (1, 10, 40):
        ratios = contest(benchmark, 2, trials, textbook_trials=1)
        found[f"S={trials}: textbook / step"] = ratios["textbook_over_stacked"]
        found[f"S={trials}: step / matmuls"] = ratios["stacked_over_matmuls"]
    found["MSDER++ / DER++, 10 classes"] = mask_ratio(10, 5, rounds=20)
    found["MSDER++ / DER++, 1,000 classes"] = mask_ratio(1000, 100, rounds=20)
    return found | method_ratios(rounds=3)


def method_ratios(rounds: int) -> dict[str, float]:
    """What a step of the dearest methods costs, in steps of SGD."""
    benchmark = random_digits()
    found: dict[str, list[float]] = {title: [] for title in METHODS.values()}
    for _ in range(rounds):
        plain, _ = cost("sgd", benchmark, None)
        for name, title in METHODS.items():
            found[title].append(cost(name, benchmark, None)[0] / plain)
    return {f"{title} / SGD": statistics.median(ratios) for title, ratios in found.items()}


def verdict(name: str, value: float, bounds: dict[str, float]) -> str:
    """What a ratio is held to, and whether it keeps to it; nothing for one without a bound."""
    if name not in bounds:
        return ""
    bound = bounds[name]
    if name.endswith("/ step"):
        side, kept = "at least", value >= bound / TOLERANCE
    else:
        side, kept = "at most", value <= bound * TOLERANCE
    return f"{side:8s} {bound:5.2f}  {'kept' if kept else 'MISSED'}"


def main() -> None:
    keep_freed_memory()  # as worker processes do
    bounds = BOUNDS[processor()]
    print(f"bounds of {processor()}")
    with one_thread():
        verdicts = {}
        for name, value in measured().items():
            verdicts[name] = verdict(name, value, bounds)
            print(f"{name:32s} {value:5.2f}  {verdicts[name]}".rstrip())
    missed = [name for name, said in verdicts.items() if said.endswith("MISSED")]
    if missed:
        raise SystemExit(f"more than 15 % worse than its bound: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
