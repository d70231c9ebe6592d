"""Compare the ratios of speed with their bounds; exits with 1 if one is more than 15 % worse.

Run with ``python benchmarks/check.py``, or ``make bench-check``. Bounds are what was measured on a
quiet machine; the tolerance is for machines that are not.
"""

from contest import contest, split_mnist
from mask_cost import mask_ratio
from timing import one_thread

AT_LEAST = {
    "S=1: textbook / step": 2.3,
    "S=10: textbook / step": 5.5,
    "S=40: textbook / step": 5.2,
}
"""Ratios that are worse when they are lower."""
AT_MOST = {
    "S=10: step / matmuls": 1.40,
    "S=40: step / matmuls": 1.11,
    "MSDER++ / DER++, 10 classes": 1.01,
    "MSDER++ / DER++, 1,000 classes": 1.03,
}
"""Ratios that are worse when they are higher."""
TOLERANCE = 1.15


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
    return found


def verdict(name: str, value: float) -> str:
    """What a ratio is held to, and whether it keeps to it; nothing for one without a bound."""
    if name in AT_LEAST:
        bound, side, kept = AT_LEAST[name], "at least", value >= AT_LEAST[name] / TOLERANCE
    elif name in AT_MOST:
        bound, side, kept = AT_MOST[name], "at most", value <= AT_MOST[name] * TOLERANCE
    else:
        return ""
    return f"{side:8s} {bound:4.2f}  {'kept' if kept else 'MISSED'}"


def main() -> None:
    with one_thread():
        verdicts = {}
        for name, value in measured().items():
            verdicts[name] = verdict(name, value)
            print(f"{name:32s} {value:5.2f}  {verdicts[name]}".rstrip())
    missed = [name for name, said in verdicts.items() if said.endswith("MISSED")]
    if missed:
        raise SystemExit(f"more than 15 % worse than its bound: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
