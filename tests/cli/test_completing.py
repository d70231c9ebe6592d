"""Completion in the shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remask.cli.app import app
from remask.cli.options import VALUES, Group
from remask.cli.results import FILTER_OPTIONS
from remask.cli.trials import RUN_OPTIONS, SETTINGS
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
    for path, seed in ((remask.store, 0), (other, 1)):
        with Store(path) as store:
            store.add(make_record(make_config(seed=seed)))
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


def test_completions_are_those_of_options() -> None:
    groups: tuple[Group, ...] = (SETTINGS, RUN_OPTIONS, FILTER_OPTIONS)
    assert VALUES.keys() <= {option.name for group in groups for option in group.options}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (
            {"_REMASK_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "remask run --method si"},
            '"si":"penalises changes',
        ),
        (
            {
                "_REMASK_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
                "_TYPER_COMPLETE_ARGS": "remask results list --benchmark split-f",
            },
            "split-fashion-mnist",
        ),
    ],
)
def test_zsh_and_fish_are_answered_without_torch(asked: dict[str, str], expected: str) -> None:
    program = (
        "import sys; sys.argv[0] = 'remask'; from remask.cli import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **asked}, capture_output=True, text=True
    )
    assert expected in done.stdout, done
    assert done.stderr.split() == ["False"]


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_the_script_for_a_shell_can_be_shown(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    assert app.info.name == "remask"
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    answer = remask("--show-completion", shell)
    assert answer.code == 0, answer
    assert "_REMASK_COMPLETE" in answer.out
