"""Bad input on every operation: ids of the wrong form, and bodies that are too large."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest

from perdure.core.ids import ID_PATTERNS, PREFIXES
from perdure.server.config import ServerConfig
from tests.server.routed import JSON, routed
from tests.server.test_openapi import operations

UUID1 = "123e4567-e89b-12d3-a456-426614174000"
UUID4 = "123e4567-e89b-42d3-a456-426614174000"
KINDS = {pattern: kind for kind, pattern in ID_PATTERNS.items()}


def id_parameters(operation: dict[str, Any]) -> dict[str, str]:
    """The kinds of the ids in the path of an operation, by the names of their parameters."""
    parameters = [one for one in operation.get("parameters", ()) if one["in"] == "path"]
    return {
        one["name"]: KINDS[one["schema"].get("pattern")] for one in parameters if one["schema"].get("pattern") in KINDS
    }


@pytest.mark.slow
async def test_an_id_of_another_form_is_refused_with_its_pattern_and_an_example() -> None:
    """A version 1 UUID, and a word, in each path: 422 that names the parameter; never a 404 or a text of Python."""
    async with routed() as server:
        document = await server.get("/openapi.json")
        checked = 0
        for name, operation in operations(document):
            method, template = name.split()
            for parameter, kind in id_parameters(operation).items():
                for value in (f"{PREFIXES[kind]}-{UUID1}", "x"):
                    ids: dict[str, str] = defaultdict(lambda: "x")
                    ids |= {one: f"{PREFIXES[other]}-{UUID4}" for one, other in id_parameters(operation).items()}
                    ids[parameter] = value
                    path = template.format_map(ids)
                    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
                    answer = await server.http.request(method, path, json=body.get("example"))
                    told = answer.json()
                    assert answer.status_code == 422, (name, value, answer.text)
                    assert told["trace_id"] == ""
                    assert f"String should match pattern '{PREFIXES[kind]}-{{uuid4}}'" in told["detail"], (name, told)
                    assert f"{PREFIXES[kind]}-{UUID4}" in told["examples"], (name, told)
                    checked += 1
        assert checked > 150


async def test_a_body_over_the_limit_is_refused_on_every_operation() -> None:
    """413 before anything of it is parsed, with the limit."""
    async with routed(config=ServerConfig(max_body_bytes=1_000)) as server:
        document = await server.get("/openapi.json")
        for name, operation in operations(document):
            method, template = name.split()
            if "application/json" not in operation.get("requestBody", {}).get("content", {}):
                continue
            path = re.sub(r"{\w+}", "x", template)
            answer = await server.http.request(method, path, content=b'{"a": "%b"}' % (b"x" * 1_000), headers=JSON)
            assert (answer.status_code, "1,000 bytes" in answer.text) == (413, True), name


async def test_a_count_that_no_database_holds_is_refused() -> None:
    """422, not a defect."""
    async with routed() as server:
        for name in ("eq", "gt", "lt"):
            field = f"connected_to_agents_count_{name}"
            status, detail = await server.refused("GET", "/v1/blocks/", **{field: 10**21})
            assert (status, field in detail) == (422, True)
