"""Names and definitions of MCP servers' tools: what servers say is looked at before it is kept."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from perdure.core.errors import InvalidInput, SecretUnreadable
from perdure.core.ids import DEFAULT_ORG, McpServerId, OrgId
from perdure.core.secrets import HIDDEN_QUERY, hide_secret, with_secret
from perdure.features.mcp.errors import describe_error
from perdure.features.mcp.units import open_server
from perdure.features.mcp.values import (
    McpServer,
    McpTool,
    ServerSecrets,
    check_server,
    local_name,
    parse_definition,
    seal_server,
)
from perdure.storage.cipher import AesCipher
from perdure.testing import InlineStore
from perdure.testing.clock import START
from tests.support.cases import for_each

CANARY = "canary-19ac"
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=90) | st.text("ab_-1", min_size=1, max_size=70)


@given(st.lists(st.tuples(names, names), min_size=2, max_size=2, unique=True))
def test_names_are_valid_stable_and_never_shared(pairs: list[tuple[str, str]]) -> None:
    """Whatever servers and their tools are called: two different tools never get one name."""
    first, second = (local_name(server, tool) for server, tool in pairs)

    assert first != second
    for name, (server, tool) in zip((first, second), pairs, strict=True):
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
        assert local_name(server, tool) == name


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("github", "search_issues", "github__search_issues"),
        ("a-b", "c__d", "a-b__c__d"),
        ("my server", "x", "my_server__x_"),
        ("a_", "b", "a___b_"),
        ("a__b", "c", "a__b__c_"),
        ("web", "naïve", "web__na_ve_"),
        ("s", "t" * 80, "s__" + "t" * 52 + "_"),
    ],
)
def test_names_stay_readable(server: str, tool: str, name: str) -> None:
    """A plain pair is joined; what can't be, or could be read in two ways, gets eight digits at its end."""
    made = local_name(server, tool)

    assert made == name if not name.endswith("_") else re.fullmatch(re.escape(name) + "[0-9a-f]{8}", made)
    assert local_name(server, tool, salt=1) != made


def test_a_definition_is_the_same_whatever_the_order_of_its_keys() -> None:
    """And another one when anything that it says is another."""
    said: dict[str, Any] = {"name": "x", "description": "Do.", "inputSchema": {"type": "object", "properties": {}}}
    swapped = {"inputSchema": {"properties": {}, "type": "object"}, "description": "Do.", "name": "x"}
    digest = parse_definition(said).digest

    assert parse_definition(swapped).digest == digest
    for change in (
        {"description": "Do it."},
        {"inputSchema": {"type": "object", "properties": {"a": {}}}},
        {"annotations": {"readOnlyHint": True}},
    ):
        assert parse_definition({**said, **change}).digest != digest


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"name": "", "inputSchema": {"type": "object"}},
        {"name": "x\n", "inputSchema": {"type": "object"}},
        {"name": "x"},
        {"name": "x", "inputSchema": {"type": "array"}},
        {"name": "x", "inputSchema": nested(20)},
        {"name": "x", "inputSchema": {"type": "object"}, "description": "d" * 70_000},
    ],
)
def test_what_is_no_definition_is_refused(said: dict[str, Any]) -> None:
    """No name, no schema of an object, too large, too deep."""
    with pytest.raises(InvalidInput):
        parse_definition(said)


def a_server(**fields: Any) -> McpServer:
    return McpServer(
        **{
            "id": McpServerId("mcp_server-1"),
            "org_id": DEFAULT_ORG,
            "name": "web",
            "transport": "streamable_http",
            "url": "https://mcp.example/x",
            "created_at": START,
            "updated_at": START,
            **fields,
        }
    )


@for_each(
    [
        ({"name": ""}, {}),
        ({"name": "-x"}, {}),
        ({"name": "x" * 65}, {}),
        ({"name": "x/y"}, {}),
        ({"transport": "carrier pigeon"}, {}),
        ({"url": ""}, {}),
        ({"url": "file:///etc/passwd"}, {}),
        ({"url": "http://"}, {}),
        ({"url": "http://[::1"}, {}),
        ({"url": "http://x:0/"}, {}),
        ({"url": "http://x:70000/"}, {}),
        ({"url": f"http://ada:{CANARY}@x/"}, {}),
        ({"url": "http://x/ y"}, {}),
        ({"command": "sh"}, {}),
        ({}, {"environment": {"A": CANARY}}),
        ({}, {"token": f"{CANARY}\r\nX: y"}),
        ({}, {"token": f"{CANARY}é"}),
        ({}, {"headers": {"Host": CANARY}}),
        ({}, {"headers": {"a b": CANARY}}),
        ({}, {"headers": {"X": f"{CANARY}\n"}}),
        ({"auth_header": "content-length"}, {"token": CANARY}),
        ({"transport": "stdio", "url": "", "command": " "}, {}),
        ({"transport": "stdio", "url": "", "command": "x\x00"}, {}),
        ({"transport": "stdio", "command": "sh"}, {}),
        ({"transport": "stdio", "url": "", "command": "sh", "args": ("\x00",)}, {}),
        ({"transport": "stdio", "url": "", "command": "sh"}, {"token": CANARY}),
        ({"transport": "stdio", "url": "", "command": "sh"}, {"environment": {"A=B": CANARY}}),
        ({"transport": "stdio", "url": "", "command": "sh"}, {"environment": {"A": f"{CANARY}\x00"}}),
    ]
)
def test_what_cannot_be_reached_is_refused(fields: dict[str, Any], secrets: dict[str, Any]) -> None:
    """With what is wrong, and without what is secret."""
    check_server(a_server(), ServerSecrets(token="t", headers={"X": "y"}))
    with pytest.raises(InvalidInput) as caught:
        check_server(a_server(**fields), ServerSecrets(**secrets))

    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "part",
    [
        {"properties": {"a": {"anyOf": 5}}},
        {"properties": {"a": {"enum": 5}}},
        {"properties": {"a": {"type": "array", "items": {"allOf": 3}}}},
        {"properties": [1]},
        {"required": "a"},
    ],
)
def test_a_tool_whose_schema_is_none_is_unusable(part: dict[str, Any]) -> None:
    """Approved before or not, and it says why; a sound one is not."""
    sound = parse_definition({"name": "x", "inputSchema": {"type": "object"}})
    bad = parse_definition({"name": "x", "inputSchema": {"type": "object", **part}})
    tool = McpTool(server_id=McpServerId("s"), name="x", local_name="s__x", seen=bad)

    assert (tool.status, replace(tool, pinned=sound).status) == ("unusable", "unusable")
    assert next(iter(part)) in tool.problem
    assert replace(tool, pinned=sound, seen=sound).status == "active"
    assert replace(tool, pinned=sound, seen=sound, removed=True).status == "removed"


class Listing(BaseModel):
    tools: list[list[str]]


def test_an_answer_that_breaks_the_protocol_is_told_in_plain_words() -> None:
    """Where, without the validator's text and its address."""
    with pytest.raises(ValidationError) as caught:
        Listing.model_validate({"tools": [[], 5]})

    assert describe_error(caught.value) == "what it answered breaks the protocol at tools[1]"


async def test_a_sealed_server_opens_in_its_own_place_only() -> None:
    """What was encrypted for one server can't be read as another's, nor as another organisation's."""
    cipher, store = AesCipher("a key of sixteen", file=None), InlineStore()
    first = seal_server(a_server(), ServerSecrets(token=CANARY), cipher=cipher)
    others = (replace(first, id=McpServerId("mcp_server-2")), replace(first, org_id=OrgId("org-2")))

    assert (await store.read(open_server, first, cipher=cipher)).token == CANARY
    for other in others:
        with pytest.raises(SecretUnreadable):
            await store.read(open_server, other, cipher=cipher)


@pytest.mark.parametrize(
    "secret",
    [
        *("?key=K123", "#key=abc1", ";key=abc1", "s3cr3tKEY12345678/mcp", "s3cr3tKEY12345678/mcp?a=1", "?a#b"),
        *(
            "bot110201543:AAHdqTcvCH1vGWJxf/send",
            "aB3-xY_z-qP9_rT-kL0s-Vw",
            "qWeRtYuIoPaSdFgHjKlZ",
            "%61bcdefghij123456789",
        ),
    ],
)
def test_what_may_hold_a_key_in_an_address_is_hidden_and_comes_back(secret: str) -> None:
    """A query, what stands behind `#` or `;`, and a part of the path that looks like a key, with all behind it."""
    url = f"https://a.example/api/{secret}"
    base, hidden = hide_secret(url)
    assert base in ("https://a.example/api/" + HIDDEN_QUERY, "https://a.example/api" + HIDDEN_QUERY)
    assert hide_secret(base) == (base, "")
    assert with_secret(base, hidden) == url
    for plain in ("https://a.example:8080/sse/v1", "https://a.example/My-Readable-Title-Of-A-Page/gpt-4o-2024-08-06"):
        assert hide_secret(plain) == (plain, "")
