"""Errors name what the caller sent: the fields of the body or the query, not the arguments of the library."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from perdure.core.errors import InvalidInput, ScheduleInvalid, rename_arguments
from tests.server.contract import create_things
from tests.server.routed import routed
from tests.server.test_openapi import operations

AT = "2026-13-45"
"""Of the form of a date, and no day."""


@pytest.mark.uses("facts", "groups", "origins", "openai_front")
async def test_a_date_that_is_none_is_named_as_it_was_sent() -> None:
    """By every operation that takes one; it begins the sentence, and its value stands behind it."""
    async with routed() as server:
        things = {name: values[0] for name, values in (await create_things(server.http)).items()}
        document = await server.get("/openapi.json")
        refused: list[tuple[str, str, str]] = []
        for name, operation in operations(document):
            method, template = name.split()
            if not things.keys() >= {*re.findall(r"{(\w+)}", template)}:
                continue
            path, content = template.format_map(things), operation.get("requestBody", {}).get("content", {})
            body = content.get("application/json", {}).get("example")
            shape: Any = content.get("application/json", {}).get("schema", {})
            shape = document["components"]["schemas"].get(shape.get("$ref", "").rpartition("/")[2], {})
            needed = {"query": "tea", "agent_id": things["agent_id"]}
            asked = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
            query = {one: needed[one] for one in asked & needed.keys()}
            owner = {"agent_id": things["agent_id"]} if body and "agent_id" in body else {}
            calls = [(field, query | {field: AT}, body) for field in _dates(asked)]
            calls += [(field, query, {**body, **owner, field: AT}) for field in _dates(shape.get("properties", ()))]
            for field, params, sent in calls:
                answer = await server.http.request(method, path, params=params, json=sent)
                if answer.status_code != 501:
                    refused.append((name, field, answer.text))

    assert [one for one in refused if not _is_named(one[1], one[2])] == []
    assert len(refused) > 20


def _dates(fields: Iterable[str]) -> list[str]:
    """The fields that take a date."""
    return [name for name in fields if re.search(r"(_date|_datetime|_at)$|^(since|until|as_of)$", name)]


def _is_named(field: str, answer: str) -> bool:
    """Whether an answer refuses the date in a field, by the field's name and with the date."""
    return re.search(rf'"detail":"((body|query)\.)?{field}\b[^"]*{AT}', answer) is not None


@pytest.mark.uses("openai_front")
async def test_other_words_of_a_caller() -> None:
    """The limits of OpenAI's clients, a key that no provider takes, and a message without a role."""
    async with routed() as server:
        agent = await server.post("/v1/agents/", {"name": "ann"})
        chat = {"model": agent["id"], "messages": [{"role": "user", "content": "hi"}]}
        for field in ("max_tokens", "max_completion_tokens"):
            answer = await server.http.post("/openai/v1/chat/completions", json=chat | {field: -1})
            assert answer.json()["error"]["message"].startswith(f"{field} is -1: "), answer.text
        provider = {"name": "mine", "provider_type": "openai", "api_key": "k", "access_key": "a"}
        status, detail = await server.refused("POST", "/v1/providers/", provider)
        assert (status, detail.startswith("access_key: ")) == (501, True)
        path = f"/v1/agents/{agent['id']}/messages/import"
        assert (await server.refused("POST", path, {"messages": [{}]}))[1].startswith("message 0: role is missing: ")


def test_only_the_name_at_the_beginning_is_replaced() -> None:
    """The kind of the error stays; what has another beginning stays as it is."""
    for error, text in (
        (ScheduleInvalid("since is 'since is': since when?"), "start_date is 'since is': since when?"),
        (InvalidInput("since: wrong"), "start_date: wrong"),
        (InvalidInput("sincerely is wrong"), "sincerely is wrong"),
        (InvalidInput("since when is that"), "since when is that"),
        (InvalidInput("until is 3"), "until is 3"),
    ):
        with pytest.raises(type(error)) as raised, rename_arguments({"since": "start_date"}):
            raise error
        assert str(raised.value) == text
