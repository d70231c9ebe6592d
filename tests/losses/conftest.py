"""The tests of the losses run twice: with all columns, and with the active ones where possible."""

from collections.abc import Iterator

import pytest

from remask.losses import masked


@pytest.fixture(autouse=True, scope="module", params=[64, 0], ids=["all", "columns"])
def few_classes(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masked, "FEW_CLASSES", request.param)
        yield
