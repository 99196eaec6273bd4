"""Objects of another organisation over HTTP, in every place of a request that can name one: as if they were not there.

The requests are generated from the OpenAPI document: ids in paths, also behind one of our own, in queries and bodies.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from perdure.core.incoming.principals import LOCAL
from perdure.server.serving.app import build_document
from tests.contracts.isolation import rows_of
from tests.features.access.worlds import KEY, KINDS, World, example_of, filled, open_world, operations
from tests.server.contract import create_things

PARAMETER = re.compile(r"\{([^}:]+)[^}]*\}")
WORDS = {
    *("mcp_server_name", "folder_name", "block_label", "tool_name", "mcp_tool_name", "number"),
    *("plugin_name", "skill_name", "command_name"),
}
"""Parameters of paths that are no ids."""

OURS = {"/v1/organizations/{org_id}"}
"""What an administrator may read of its own organisation, whose id is no secret; it is not a thing of the other's."""

NOT_HERE = frozenset({404, 405})
UNSUPPORTED = frozenset({501, 502})
"""What Letta has and this server not; and servers of ours that are not there."""

Things = Mapping[str, str]
"""Parameter of a path -> the id of something that the organisation has."""


@dataclass
class Two:
    """A server with a full organisation, and the client and things of another one, which has as much."""

    world: World
    client: httpx.AsyncClient
    own: Things
    foreign: Things


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    async with open_world() as world:
        async with world.client(KEY) as owner:
            foreign = await things_of(owner, world)
        acme = await world.access().create_organisation("Acme")
        _, key = await world.access(acme.id).create_key("root", "admin")
        async with world.client(key) as client:
            yield Two(world, client, await things_of(client, world, acme.id), foreign)


async def things_of(client: httpx.AsyncClient, world: World, org_id: Any = LOCAL.org_id) -> Things:
    """One of each thing that paths name, made by this client."""
    things = {name: ids[0] for name, ids in (await create_things(client)).items()}
    agent = things["agent_id"]
    schedule = {"schedule": {"type": "interval", "every_s": 3_600}, "messages": [{"role": "user", "content": "tick"}]}
    provider = {"name": f"mine{len(org_id)}{org_id[-3:]}", "provider_type": "openai", "api_key": "sk-none-of-this"}
    server = {"server_name": "files", "config": {"mcp_server_type": "streamable_http", "server_url": "https://a.test/"}}
    made: dict[str, Any] = {
        "scheduled_message_id": (f"/v1/agents/{agent}/schedule", schedule),
        "provider_id": ("/v1/providers/", provider | {"base_url": "https://8.8.8.8:1/v1"}),
        "mcp_server_id": ("/v1/mcp-servers/", server),
        "note_id": (f"/v1/agents/{agent}/notes", {"kind": "doc", "title": "Ours", "fields": {"text": "Ours."}}),
        "user_id": ("/v1/users/", {"name": "ann"}),
        "key_id": ("/v1/keys/", {"name": "more"}),
    }
    for name, (path, body) in made.items():
        answer = await client.post(path, json=body)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        things[name] = answer.json()["id"]
    answer = await client.post("/openai/v1/responses", json={"model": agent, "input": "hi"})
    things |= {"model": agent, "response_id": answer.json()["id"]}
    return things | {"org_id": org_id, "schedule_id": things["scheduled_message_id"]}


def parameters_of(path: str) -> list[str]:
    """The parameters of a path that are ids."""
    return [name for name in PARAMETER.findall(path) if name not in WORDS]


def url_of(path: str, ids: Mapping[str, str], words: Mapping[str, str]) -> str:
    return PARAMETER.sub(lambda match: ids.get(match[1]) or words.get(match[1]) or filled(match[0]), path)


def with_query(path: str) -> str:
    """What a route can't do without."""
    return "?query=tea" if path.endswith("/search") else "?source=x" if path.endswith("/writes") else ""


async def asked(two: Two, method: str, path: str, ids: Mapping[str, str], body: Any = None) -> httpx.Response:
    """The answer to a request of the other organisation."""
    if body is None and method not in ("GET", "DELETE"):
        body = example_of(method, path)
    if path.endswith("/upload"):
        files, headers = {"file": ("a.md", b"# A", "text/markdown")}, {"x-requested-with": "tests"}
        return await two.client.post(url_of(path, ids, two.foreign), files=files, headers=headers)
    return await two.client.request(method, url_of(path, ids, two.foreign) + with_query(path), json=body)


async def rows_of_the_first(two: Two) -> Counter[Any]:
    """The rows that name things of the first organisation, without what counts requests."""
    rows = await two.world.library.app.store.read(rows_of)
    things = {value for name, value in two.foreign.items() if name not in WORDS}
    volatile = ("used", "audit_entries", "api_keys")
    return Counter(
        {row: count for row, count in rows.items() if row[0] not in volatile and any(one in row[1] for one in things)}
    )


@pytest.mark.slow
async def test_an_id_in_a_path_leads_nowhere(two: Two) -> None:
    """Whatever the route does with it: 404, and nothing of the other organisation changes."""
    found, tried, kinds = [], 0, set[str]()
    before = await rows_of_the_first(two)
    for method, path in operations():
        if not (names := parameters_of(path)) or (path in OURS and method == "GET"):
            continue
        assert set(names) <= two.foreign.keys(), f"no test has an id for {names}"
        tried, kinds = tried + 1, kinds | set(names)
        answer = await asked(two, method, path, two.foreign)
        if answer.status_code not in NOT_HERE:
            found.append((answer.status_code, method, path, answer.text[:200]))
    after = await rows_of_the_first(two)

    print(f"{tried} operations with ids of {len(kinds)} kinds in their paths")
    assert found == []
    assert tried > 150 and kinds >= {name for name in KINDS if name in two.foreign} - {"schedule_id", "source_id"}
    assert before - after == Counter()


async def test_an_id_behind_one_of_our_own_leads_nowhere(two: Two) -> None:
    """As in attaching another's block to our agent."""
    found, tried = [], 0
    before = await rows_of_the_first(two)
    for method, path in operations():
        names = parameters_of(path)
        for place in range(1, len(names)):
            ids = {name: (two.foreign if names.index(name) == place else two.own)[name] for name in names}
            tried += 1
            answer = await asked(two, method, path, ids)
            if answer.status_code not in NOT_HERE:
                found.append((answer.status_code, method, path, answer.text[:200]))

    print(f"{tried} ids behind one of our own")
    assert found == []
    assert tried >= 30
    assert before - await rows_of_the_first(two) == Counter()


@pytest.mark.slow
async def test_an_id_in_a_query_finds_nothing(two: Two) -> None:
    """A filter by another's thing is refused, or its answer holds nothing of it."""
    found, tried = [], 0
    kinds = {"agent_ids": "agent_id", "tool_ids": "tool_id", "source_id": "folder_id", "object_id": "agent_id"}
    for path, methods in build_document(True)["paths"].items():
        for method, operation in methods.items():
            names = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
            for name in names:
                if (value := two.foreign.get(kinds.get(name, name))) is None or name in WORDS:
                    continue
                tried += 1
                url = url_of(path, two.own, two.own) + (with_query(path) or "?") + f"&{name}={value}"
                body = None if method in ("get", "delete") else example_of(method, path)
                answer = await two.client.request(method, url, json=body)
                if answer.status_code not in NOT_HERE and (names_another(answer, two, value) or not is_fine(answer)):
                    found.append((answer.status_code, method, url, answer.text[:200]))

    print(f"{tried} ids in queries")
    assert found == []
    assert tried > 40


@pytest.mark.slow
async def test_an_id_in_a_body_changes_nothing(two: Two) -> None:
    """Every field of a body that can name a thing names another's: refused, or without an effect on it."""
    document, found, tried = build_document(True), [], 0
    before = await rows_of_the_first(two)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is None:
                continue
            example = example_of(method, path)
            for name, value in fields_of(content["schema"], document, two.foreign):
                tried += 1
                body = {**(example if isinstance(example, dict) else {}), name: value}
                answer = await asked(two, method.upper(), path, two.own, body)
                said = value[0] if isinstance(value, list) else value
                if answer.status_code < 300 and names_another(answer, two, said):
                    found.append((answer.status_code, method, path, name, answer.text[:300]))

    print(f"{tried} ids in bodies")
    assert found == []
    assert tried > 30
    assert before - await rows_of_the_first(two) == Counter()


def fields_of(schema: Mapping[str, Any], document: Any, things: Things) -> Iterator[tuple[str, Any]]:
    """The fields of a body that name things of these kinds, and what they then hold."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    for name, field in schema.get("properties", {}).items():
        single = name.removesuffix("s") if name.endswith("_ids") else name
        if (single := {"source_id": "folder_id"}.get(single, single)) in things and single not in WORDS:
            kinds = {field.get("type"), *(one.get("type") for one in field.get("anyOf", ()))}
            yield name, [things[single]] if "array" in kinds else things[single]


def is_fine(answer: httpx.Response) -> bool:
    """Whether a request was answered, or refused as one that is wrong."""
    return answer.status_code < 500 or answer.status_code in UNSUPPORTED


def names_another(answer: httpx.Response, two: Two, said: str) -> bool:
    """Whether an answer holds a thing of the other organisation, besides the id that the request itself said."""
    others = {value for name, value in two.foreign.items() if name not in WORDS} - {said}
    return any(other in answer.text for other in others)
