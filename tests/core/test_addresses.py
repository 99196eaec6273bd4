"""Addresses of stores, as people and logs may see them; and which hosts are this machine or near it."""

from __future__ import annotations

import pytest

from perdure.core.errors import InvalidInput
from perdure.core.incoming.addresses import (
    check_store_address,
    is_allowed,
    is_loopback,
    is_near,
    is_postgres,
    without_password,
)
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


@pytest.mark.parametrize("name", ["agents.db", "/data/a:b.db", "C:/x.db", "~/host=1.db", "postgres.db", "a b", ""])
def test_the_name_of_a_file_stays_one(name: str) -> None:
    """Only what can hardly be one is refused."""
    check_store_address("PERDURE_STORE", name)


@pytest.mark.parametrize("address", ["mysql://x/y", "sqlite:///x.db", "postgresql+psycopg://x/y", "postgres:foo"])
def test_another_address_is_refused(address: str) -> None:
    """The error names where it stands."""
    with pytest.raises(InvalidInput, match=r"^TO begins with .*postgresql://"):
        check_store_address("TO", address)


def test_the_log_masks_passwords_of_addresses() -> None:
    """Also as they stand decoded in the address."""
    found = environment_secrets({"PERDURE_STORE": "postgresql://ada:long%40secret@db/x", "HOME": "/root"})

    assert found == ("long%40secret", "long@secret")


@pytest.mark.parametrize(
    ("host", "is_own", "is_in_reach"),
    [
        *((host, True, True) for host in ("127.0.0.1", "127.8.0.9", "::1", "[::1]", "::ffff:127.0.0.1", "LOCALHOST.")),
        *((host, False, True) for host in ("192.168.1.5", "::ffff:10.0.0.1", "fd00::1", "fe80::1%eth0", "0.0.0.0")),
        *((host, False, True) for host in ("llama", "Host.Docker.Internal", "nas.local.")),
        *((host, False, False) for host in ("127.evil.example", "localhost.evil.example", "127.0.0.1.evil.example")),
        *((host, False, False) for host in ("8.8.8.8", "::ffff:8.8.8.8", "2606:4700::1111", "api.groq.com", "")),
    ],
)
def test_a_host_is_this_machine_by_what_it_is_and_not_by_how_it_begins(
    host: str, is_own: bool, is_in_reach: bool
) -> None:
    """An address counts as the number that it is, however it is written; a name counts whole."""
    assert (is_loopback(host), is_near(host.strip("[]"))) == (is_own, is_in_reach)


@pytest.mark.parametrize("zone", ["", "%1", "%eth0"])
def test_no_form_of_an_address_leads_to_where_clouds_serve_metadata(zone: str) -> None:
    """An IPv4 address in an IPv6 one is reached also through a zone."""
    for host in ("169.254.169.254", "100.100.100.200", "0.0.0.0", "224.0.0.1"):
        assert not is_allowed(f"::ffff:{host}{zone}") and not is_allowed(f"64:ff9b::{host}{zone}")
    assert not is_allowed(f"fd00:ec2::254{zone}") and is_allowed(f"::ffff:10.0.0.1{zone}")
