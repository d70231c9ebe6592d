"""The list of mutants matches the source, so that none is silently out of date."""

from pathlib import Path

import pytest

import remask
from tests.mutants import MUTANTS, ROOT, Mutant

_SOURCE = Path(remask.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_changes_one_place_and_names_tests_that_exist(mutant: Mutant) -> None:
    assert (_SOURCE / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.new != mutant.old
    paths = [ROOT / "tests" / each.partition("::")[0] for each in mutant.tests.split()]
    assert all(path.exists() for path in paths)
