"""The HTTP API against its own OpenAPI document, by schemathesis: thousands of requests over all operations."""

from __future__ import annotations

import os

import pytest

from tests.server.contract import probe

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.environ.get("PERDURE_FAULTS") != "full", reason="its short form is in tests/server"),
]

REQUESTS = 5_000


def test_the_limits_of_every_field_are_as_documented() -> None:
    """Each limit of each field, each media type, each method that is not documented."""
    found = probe("coverage")

    assert not found.failures, "\n".join(found.failures[:20])
    assert found.requests >= REQUESTS, found.statuses


@pytest.mark.parametrize("key", [None, "a long random text"])
def test_random_requests_are_answered_as_documented(key: str | None) -> None:
    """Valid and invalid ones of every operation, with a key and without."""
    found = probe("fuzzing", examples=20, key=key)

    assert not found.failures, "\n".join(found.failures[:20])
    assert found.statuses[200] > 200, found.statuses
