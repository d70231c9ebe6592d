"""Completion in the shell."""

from pathlib import Path

import pytest

from remask.store import Store
from tests.command_line import CommandLine
from tests.store.store_samples import make_config, make_record


def _complete(remask: CommandLine, monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """Complete the last word of a line, which is empty after a space, as bash does."""
    words = line.split(" ")
    monkeypatch.setenv("_REMASK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    return remask().out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("remask rep", ["reproduce", "report"]),
        ("remask results me", ["merge"]),
        ("remask run --replay", ["--replay-batch"]),
        ("remask run --method er,derp", ["er,derpp"]),
        ("remask run --benchmark split-c", ["split-cifar10", "split-cifar100"]),
        ("remask run --mask none,a", ["none,auto"]),
        ("remask run --memory b", ["balanced"]),
        ("remask learn animals --method er_e", ["er_ema"]),
        ("remask reproduce main,low", ["main,low-buffer"]),
        ("remask data fetch tiny", ["tiny-imagenet"]),
        ("remask results list --status f", ["finished", "failed"]),
        ("remask results merge a.db --prefer t", ["theirs"]),
        ("remask results export a.csv --format p", ["parquet"]),
    ],
)
def test_commands_options_and_values_are_completed(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch, line: str, expected: list[str]
) -> None:
    assert _complete(remask, monkeypatch, line) == expected


def test_hashes_and_runs_are_those_of_the_store_that_is_named(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert _complete(remask, monkeypatch, "remask results show ") == []
    assert not remask.store.exists()
    other = tmp_path / "other.db"
    remask.add(make_record(make_config(seed=0)))
    with Store(other) as store:
        store.add(make_record(make_config(seed=1)))
    ours, theirs = (make_config(seed=seed).hash[:12] for seed in (0, 1))
    assert _complete(remask, monkeypatch, "remask results show ") == [ours]
    assert _complete(remask, monkeypatch, "remask results list --hash ") == [ours]
    assert _complete(remask, monkeypatch, f"remask results show --store {other} ") == [theirs]
    plan = remask.store.with_name("results.db.runs") / "0123456789ab" / "run.json"
    plan.parent.mkdir(parents=True)
    plan.write_text("{}")
    assert _complete(remask, monkeypatch, "remask resume 01") == ["0123456789ab"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "other.db", "results.db", "results.db.runs",
    ]  # fmt: skip
