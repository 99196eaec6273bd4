"""The HTTP API against its own OpenAPI document, by schemathesis; the long form is in `tests/faults`."""

from __future__ import annotations

import pytest

from tests.server.contract import probe


@pytest.mark.slow
@pytest.mark.uses("groups")
def test_every_operation_answers_as_the_document_says() -> None:
    """One random request an operation, the same ones each time; a key is asked for where it is documented."""
    found = probe("fuzzing", key="a long random text")

    assert not found.failures, "\n".join(found.failures[:20])
    assert found.requests > 120, found.statuses
    assert found.statuses[200] > 20, found.statuses
