"""The routes of search, as clients see them: what is found, why, and what ran."""

from __future__ import annotations

import json
from typing import Any

import pytest
from letta_client.types import MessageSearchResponse, PassageSearchResponse
from pydantic import TypeAdapter

from perdure.library.memory import search as search_service
from perdure.testing import says
from tests.server.routed import Routed, new_agent, routed

NOBODY = "agent-00000000-0000-4000-8000-000000000000"
NOWHERE = "archive-00000000-0000-4000-8000-000000000000"
NO_TALK = "conv-00000000-0000-4000-8000-000000000000"


async def put_away(server: Routed, name: str, *texts: str) -> str:
    """The id of a new archive with these texts, a month apart."""
    archive = await server.post("/v1/archives/", {"name": name})
    passages = [
        {"text": text, "tags": [name], "created_at": f"2024-0{month}-01T12:00:00Z"}
        for month, text in enumerate(texts, 1)
    ]
    await server.post(f"/v1/archives/{archive['id']}/passages/batch", {"passages": passages})
    archive_id: str = archive["id"]
    return archive_id


async def import_texts(server: Routed, agent: Any, *texts: str) -> None:
    """Have the agent's history hold these, a month apart."""
    messages = [
        {"role": "user" if month % 2 else "assistant", "text": text, "occurred_at": f"2024-0{month}-01T12:00:00Z"}
        for month, text in enumerate(texts, 1)
    ]
    await server.post(f"/v1/agents/{agent['id']}/messages/import", {"messages": messages})


async def test_passages_are_found_in_archives() -> None:
    """In one, in those of an agent, in all; by words, tags and dates; without a query the newest."""
    async with routed() as server:
        sea = await put_away(server, "sea", "The walrus sings", "The walrus sleeps")
        land = await put_away(server, "land", "A walrus on land", "A quiet house")
        agent = await new_agent(server, timezone="Europe/Rome")
        await server.patch(f"/v1/agents/{agent['id']}/archives/attach/{land}")

        async def search_texts(**body: Any) -> list[str]:
            answer = await server.post("/v1/passages/search", body)
            TypeAdapter(PassageSearchResponse).validate_python(answer)
            assert all(list(hit) == ["passage", "score", "metadata"] for hit in answer)
            return sorted(hit["passage"]["text"] for hit in answer)

        everything = ["A walrus on land", "The walrus sings", "The walrus sleeps"]
        assert await search_texts(query="walrus") == everything
        assert await search_texts(query="walrus", archive_id=sea) == everything[1:]
        assert await search_texts(query="walrus", agent_id=agent["id"]) == everything[:1]
        assert await search_texts(query="walrus", agent_id=agent["id"], archive_id=land) == everything[:1]
        assert await search_texts(query="walrus", tags=["land"]) == everything[:1]
        assert await search_texts(query="walrus", start_date="2024-02-01") == everything[2:]
        assert await search_texts(query="walrus", end_date="2024-01-01", archive_id=sea) == everything[1:2]
        assert await search_texts(archive_id=sea, limit=1) == everything[2:]
        found_by_client = await server.letta.passages.search(query="walrus", archive_id=sea, limit=1)
        assert [hit.passage.archive_id for hit in found_by_client] == [sea]


async def test_messages_are_found_in_histories() -> None:
    """Of one agent, one conversation, or all of them; by words and dates; in the shape of the client's types."""
    async with routed() as server:
        ann, bob = await new_agent(server, "ann"), await new_agent(server, "bob")
        await import_texts(server, ann, "I planted a quince.", "A quince tree? Lovely!")
        await import_texts(server, bob, "Where do quinces grow?")
        other = await (await server.library.agent(ann["id"])).new_conversation()
        await server.post(
            f"/v1/agents/{ann['id']}/messages/import",
            {
                "messages": [{"role": "user", "text": "Quince jam", "occurred_at": "2024-05-01T12:00:00Z"}],
                "conversation_id": other.id,
            },
        )

        async def search_texts(**body: Any) -> list[str]:
            answer = await server.post("/v1/messages/search", {"query": "quince", **body})
            TypeAdapter(MessageSearchResponse).validate_python(answer)
            return sorted(hit["content"] for hit in answer)

        asked, lovely, planted, jam = (
            *("Where do quinces grow?", "A quince tree? Lovely!"),
            *("I planted a quince.", "Quince jam"),
        )
        assert await search_texts() == sorted([asked, lovely, planted, jam])
        assert await search_texts(agent_id=ann["id"]) == sorted([lovely, planted, jam])
        assert await search_texts(conversation_id=other.id) == [jam]
        assert await search_texts(conversation_id="default", agent_id=ann["id"]) == sorted([lovely, planted])
        assert await search_texts(agent_id=ann["id"], start_date="2024-02-01", end_date="2024-03-01") == [lovely]
        assert await search_texts(agent_id=ann["id"], search_mode="fts", limit=1) in ([lovely], [planted], [jam])
        assert await search_texts(query="dragonfruit") == []
        (hit,) = await server.post("/v1/messages/search", {"query": "jam", "agent_id": ann["id"]})
        old = {"query": "jam", "roles": ["user"], "project_id": None, "limit": 1}
        assert len(await server.post("/v1/agents/messages/search", old)) == 1
        assert (hit["message_type"], hit["agent_id"], hit["conversation_id"]) == ("user_message", ann["id"], other.id)
        assert hit["created_at"] == "2024-05-01T12:00:00.000000Z"
        by_client = await server.letta.messages.search(query="jam", agent_id=ann["id"])
        assert [one.message_id for one in by_client] == [hit["message_id"]]


async def test_every_search_explains_itself() -> None:
    """Each hit says why, and the search what ran and what could not; without being asked only the header does."""
    async with routed() as server:
        agent = await new_agent(server)
        for text in ("The walrus sings", "A walrus sleeps on the ice all day, and so do the others"):
            await server.post(f"/v1/agents/{agent['id']}/archival-memory", {"text": text})
        await import_texts(
            server, agent, "A walrus!", "A penguin.", "There is no walrus here, or is there one over there?"
        )
        path = f"/v1/agents/{agent['id']}/archival-memory/search"
        own = await server.get(path, query="walrus", explain=True)
        plain = await server.http.get(path, params={"query": "walrus"})
        passages = await server.post("/v1/passages/search", {"query": "walrus", "explain": True})
        messages = await server.post("/v1/messages/search", {"query": "walrus", "explain": True})

        assert list(plain.json()) == ["results", "count"]
        header = json.loads(plain.headers["x-perdure-ran"])
        assert header["arms"] == own["ran"]["arms"] == ["words"]
        assert "vectors" in header["left_out"]
        for explanation, ran in (
            (own["results"][0]["explanation"], own["ran"]),
            (passages[0]["explanation"], passages[0]["explanation"]["ran"]),
            (messages[0]["explanation"], messages[0]["explanation"]["ran"]),
        ):
            assert ran["left_out"]["vectors"]
            assert ran["rows"] >= 1
            assert explanation["words"] > 0
            assert explanation["parts"]
            assert explanation["cosine"] is None


async def test_what_can_t_be_looked_for_is_refused() -> None:
    """Empty queries, limits out of range, wrong types, and things that are not there."""
    async with routed() as server:
        ann, bob = await new_agent(server, "ann"), await new_agent(server, "bob")
        archive = await put_away(server, "sea", "The walrus sings")
        theirs = (await (await server.library.agent(bob["id"])).find_conversation()).id
        cases: list[tuple[str, dict[str, Any], int, str]] = [
            ("passages", {"query": ""}, 422, "empty"),
            ("passages", {"query": " \n"}, 422, "empty"),
            ("passages", {"query": 5}, 422, "body.query"),
            ("passages", {"limit": 0}, 422, "body.limit"),
            ("passages", {"limit": 1_001}, 422, "body.limit"),
            ("passages", {"tag_match_mode": "some"}, 422, "tag_match_mode"),
            ("passages", {"tags": "sea"}, 422, "body.tags"),
            ("passages", {"start_date": "soon"}, 422, "soon"),
            ("passages", {"archive_id": "x"}, 422, "archive-{uuid4}"),
            ("passages", {"archive_id": NOWHERE}, 404, NOWHERE),
            ("passages", {"agent_id": NOBODY}, 404, NOBODY),
            ("passages", {"agent_id": ann["id"], "archive_id": archive}, 404, archive),
            ("messages", {}, 422, "body.query"),
            ("messages", {"query": ""}, 422, "empty"),
            ("messages", {"query": "x", "limit": 0}, 422, "body.limit"),
            ("messages", {"query": "x", "search_mode": "magic"}, 422, "search_mode"),
            ("messages", {"query": "x", "search_mode": "vector"}, 422, "embedder"),
            ("messages", {"query": "x", "agent_id": NOBODY}, 404, NOBODY),
            ("messages", {"query": "x", "conversation_id": NO_TALK}, 404, NO_TALK),
            ("messages", {"query": "x", "conversation_id": theirs, "agent_id": ann["id"]}, 404, theirs),
            ("messages", {"query": "x", "conversation_id": "default"}, 422, "agent_id"),
        ]
        for what, body, status, named in cases:
            got = await server.refused("POST", f"/v1/{what}/search", body)
            assert (got[0], named in got[1]) == (status, True), (what, body, got)


async def test_a_search_of_everything_covers_what_was_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are more agents or archives than one search covers; a named one is always searched."""
    monkeypatch.setattr(search_service, "OWNERS_MAX", 2)
    async with routed(*[says("ok")] * 3) as server:
        agents = [(await new_agent(server, name))["id"] for name in ("ann", "bob", "eve")]
        archives = [await put_away(server, name, f"A walrus by the {name}") for name in ("sea", "land", "air")]
        for agent_id in (agents[0], agents[1], agents[2]):
            await server.post(f"/v1/agents/{agent_id}/messages", {"input": "a walrus"})

        async def find(what: str, **body: Any) -> list[Any]:
            return list(await server.post(f"/v1/{what}/search", {"query": "walrus", **body}))

        assert {hit["agent_id"] for hit in await find("messages")} == set(agents[1:])
        assert {hit["agent_id"] for hit in await find("messages", agent_id=agents[0])} == {agents[0]}
        assert {hit["passage"]["archive_id"] for hit in await find("passages")} == set(archives[1:])
        assert len(await find("passages", archive_id=archives[0])) == 1
