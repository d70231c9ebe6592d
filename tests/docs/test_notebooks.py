"""The notebooks run from top to bottom, and print what is saved in them."""

import ast
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import words
from tests.repository import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loss", "learner", "research"])
def test_a_notebook_runs_and_prints_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "research":
        pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        with redirect_stdout(StringIO()) as out:
            exec(compile(ast.parse("".join(cell["source"])), name, "exec"), names)
        shown = "".join("".join(output.get("text", "")) for output in cell["outputs"])
        if name == "learner":  # its sentences depend on the last digits of the processor
            assert bool(out.getvalue()) == bool(shown)
        else:
            assert words(out.getvalue()) == words(shown)
