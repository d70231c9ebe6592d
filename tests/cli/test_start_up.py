"""What a command imports: torch takes seconds, and numpy or all settings a tenth of one each."""

import inspect
import sys
from pathlib import Path

import pytest

from remask.cli.app import COMMANDS, load
from remask.store import Store
from tests.command_line import run_process
from tests.store.store_samples import make_config, make_record

_SCRIPT = """
import sys
sys.argv[0] = "remask"
from remask.cli import main
try:
    main()
finally:
    print(*(name for name in {heavy!r} if name in sys.modules), file=sys.stderr)
"""
_HEAVY = ("torch", "numpy", "rich.markdown", "remask.config", "remask.reports.figures")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("command", "printed", "needed"),
    [
        ("--help", "reproduce", "rich.markdown"),
        ("methods", "MSDER++", ""),
        ("encoders", "efficientnet-lite0", ""),
        ("benchmarks", "split-tiny-imagenet", "numpy"),
        ("results list --method msderpp", "MSDER++(-1)", "numpy remask.config"),
        ("run --help", "--replay-batch", "numpy rich.markdown remask.config"),
    ],
)
def test_a_command_imports_only_what_it_needs(
    command: str, printed: str, needed: str, tmp_path: Path
) -> None:
    with Store(tmp_path / "results.db") as store:
        store.add(make_record(make_config(method="derpp", mask=-1.0)))
    script = _SCRIPT.format(heavy=_HEAVY)
    environment = {"REMASK_STORE": str(tmp_path / "results.db"), "COLUMNS": "160"}
    found = run_process(sys.executable, "-c", script, *command.split(), environment=environment)
    assert printed in found.stdout
    assert found.stderr.strip() == needed


@pytest.mark.processes
def test_zsh_is_answered_without_torch() -> None:
    asked = {"_REMASK_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "remask run --method si"}
    found = run_process(sys.executable, "-c", _SCRIPT.format(heavy=("torch",)), environment=asked)
    assert '"si":"penalises changes' in found.stdout
    assert found.stderr.strip() == ""


@pytest.mark.processes
def test_remask_and_the_options_of_a_run_are_imported_without_torch_and_numpy() -> None:
    code = (
        "import sys, remask, remask.experiments.options, remask.lazy_names\n"
        "print([name for name in ('torch', 'numpy') if name in sys.modules])\n"
        "remask.Store\n"
        "print('torch' in sys.modules)"
    )
    assert run_process(sys.executable, "-c", code).stdout.split() == ["[]", "False"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_own_help(name: str) -> None:
    command = load(name)
    assert command.name in (name, "")
    assert inspect.cleandoc(command.help).split("\n")[0] == COMMANDS[name][1]
