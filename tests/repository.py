"""The repository around the tests, for those that test its docs, examples and files.

Where the tests run by themselves, against an installed remask (`make test-wheel`), importing this
skips whoever imports it: a module at its top, a test by the fixture `repository`.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

if not (ROOT / "src" / "remask").is_dir():
    pytest.skip("tests the repository, and there is none around", allow_module_level=True)
