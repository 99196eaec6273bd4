"""Addresses of stores, as people and logs may see them."""

from __future__ import annotations

import pytest

from perdure.core.text.addresses import is_postgres, without_password
from perdure.providers.masking import environment_secrets


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ada:secret@db/x", "postgresql://ada:***@db/x"),
        ("postgres://ada:se@cr:et@db/x", "postgres://ada:***@db/x"),
        ("postgresql://ada@db/x?user=a&password=secret&sslmode=require", None),
        ("postgresql:///x?host=/run", "postgresql:///x?host=/run"),
        ("/data/a:b@c.db", "/data/a:b@c.db"),
        ("http://u:secret@searx.test/?q=a:b@c", "http://u:***@searx.test/?q=a:b@c"),
    ],
)
def test_the_password_is_masked(address: str, shown: str | None) -> None:
    """Whatever stands in it; the rest of the address stays."""
    masked = without_password(address)

    assert masked == (shown or "postgresql://ada@db/x?user=a&password=***&sslmode=require")


def test_a_file_is_no_database() -> None:
    """Only the two schemes are."""
    assert is_postgres("postgres://x") and not is_postgres("postgres.db")


def test_the_log_masks_passwords_of_addresses() -> None:
    """Also as they stand decoded in the address."""
    found = environment_secrets({"PERDURE_STORE": "postgresql://ada:long%40secret@db/x", "HOME": "/root"})

    assert found == ("long%40secret", "long@secret")
