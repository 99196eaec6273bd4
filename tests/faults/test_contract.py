"""The HTTP API against its own OpenAPI document, by schemathesis: thousands of requests over all operations, on both
databases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.server.contract import Found, probe
from tests.support.postgres_server import address_of_a_new_schema

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.environ.get("PERDURE_FAULTS") != "full", reason="its short form is in tests/server"),
]

REQUESTS, KEY = 5_000, "a long random text"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that is still empty."""
    return str(tmp_path / "agents.db") if request.param == "sqlite" else address_of_a_new_schema()


def check(found: Found) -> None:
    """Print what was sent, and fail where an answer was not as documented, or from 500 on."""
    print(f"{found.requests:,} requests, answers by status: {dict(sorted(found.statuses.items()))}")
    assert not found.broken, found.statuses
    assert not found.failures, "\n".join(found.failures[:20])


def test_the_limits_of_every_field_are_as_documented(address: str) -> None:
    """Each limit of each field, each media type, each method that is not documented."""
    found = probe("coverage", key=KEY, address=address)

    check(found)
    assert found.requests >= REQUESTS, found.statuses
    assert found.statuses[200] > 1_000, found.statuses


@pytest.mark.parametrize("key", [None, KEY])
def test_random_requests_are_answered_as_documented(key: str | None, address: str) -> None:
    """Valid and invalid ones of every operation, with a key and without."""
    found = probe("fuzzing", examples=40, key=key, address=address)

    check(found)
    assert found.requests >= REQUESTS, found.statuses
    assert found.statuses[200] > 200, found.statuses
