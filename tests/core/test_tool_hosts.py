"""The hosts of a tool: how they may be written, and what a list allows."""

from __future__ import annotations

import pytest

from perdure.core.errors import InvalidInput
from perdure.core.tools.sandbox import check_hosts, listed_ports
from tests.support.cases import for_each

WEB = frozenset({80, 443})


def test_hosts_are_kept_in_lower_case_and_once() -> None:
    assert check_hosts(
        ["API.Example.org", "api.example.org", " *.a.b:8080 ", "10.0.0.7:5432", "[2001:DB8::1]", "*"]
    ) == ("api.example.org", "*.a.b:8080", "10.0.0.7:5432", "[2001:db8::1]", "*")
    assert check_hosts(None) == check_hosts(False) == check_hosts([]) == ()


@for_each(
    [
        True,
        "api.example.org",
        {"a": 1}.items(),
        5,
        [""],
        [None],
        [True],
        ["http://a.b"],
        ["a.b/c"],
        ["user@a.b"],
        ["a b"],
        ["a..b"],
        [".a"],
        ["-a.b"],
        ["a.*.b"],
        ["**"],
        ["*a.b"],
        ["a.b:0"],
        ["a.b:65536"],
        ["a.b:"],
        ["1.2.3"],
        ["0x7f.1"],
        ["2130706433"],
        ["2001:db8::1"],
        ["[1.2.3.4]"],
        ["[zz]"],
        ["a\n.b"],
        ["a" * 300],
        ["a.b"] * 101,
    ]
)
def test_what_is_no_list_of_hosts_is_refused(value: object) -> None:
    """The sentence shows how one is written; true, which older tools say, does not mean every host."""
    with pytest.raises(InvalidInput, match="network"):
        check_hosts(value)


@pytest.mark.parametrize(
    ("hosts", "host", "ports", "named"),
    [
        (["a.b"], "a.b", WEB, True),
        (["a.b:5432"], "a.b", {5432}, True),
        (["a.b", "a.b:5432"], "a.b", {*WEB, 5432}, True),
        (["a.b"], "x.a.b", set(), False),
        (["*.a.b"], "x.a.b", WEB, False),
        (["*.a.b"], "y.x.a.b", WEB, False),
        (["*.a.b"], "a.b", set(), False),
        (["*.a.b"], "xa.b", set(), False),
        (["*"], "a.b", WEB, False),
        (["*:22"], "a.b", {22}, False),
        (["*", "a.b:22"], "a.b", {*WEB, 22}, True),
        (["[2001:db8::1]:8080"], "2001:db8::1", {8080}, True),
    ],
)
def test_a_list_allows_its_hosts_at_their_ports(hosts: list[str], host: str, ports: set[int], named: bool) -> None:
    assert listed_ports(check_hosts(hosts), host, web=WEB) == (frozenset(ports), named)
