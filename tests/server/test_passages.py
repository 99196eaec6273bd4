"""The routes of archival memory, as clients see them."""

from __future__ import annotations

from typing import Any

from letta_client.types import Passage
from letta_client.types.agents import PassageSearchResponse

from tests.server.routed import Routed, new_agent, routed

NOBODY = "agent-00000000-0000-4000-8000-000000000000"

PASSAGE_FIELDS = [
    *("created_by_id", "last_updated_by_id", "created_at", "updated_at", "is_deleted", "organization_id"),
    *("archive_id", "source_id", "file_id", "file_name", "metadata", "tags", "id", "text", "embedding"),
    "embedding_config",
]
"""Names in the order in which Letta's server sends them."""


async def put_away(server: Routed, agent: Any, *texts: str, **fields: Any) -> list[str]:
    """The ids of new passages."""
    path = f"/v1/agents/{agent['id']}/archival-memory"
    return [(await server.post(path, {"text": text, **fields}))[0]["id"] for text in texts]


async def test_a_passage_has_all_fields_of_the_wire() -> None:
    """Putting one away answers with a list of one, in Letta's order of fields."""
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/archival-memory"
        made = await server.post(
            path, {"text": "The moon is white", "tags": ["m"], "created_at": "2020-02-03T04:05:06+01:00"}
        )
        (passage,) = made
        Passage.model_validate(passage)

        assert list(passage) == PASSAGE_FIELDS
        assert (passage["text"], passage["tags"], passage["embedding"]) == ("The moon is white", ["m"], None)
        assert passage["created_at"] == "2020-02-03T03:05:06.000000Z"
        assert await server.get(path) == made

        for body, named in (
            ({}, "body.text"),
            ({"text": " "}, "empty"),
            ({"text": "x", "tags": "m"}, "body.tags"),
            ({"text": "x", "created_at": "soon"}, "body.created_at"),
            ({"text": "x", "created_at": "0001-01-01T00:00:00+14:00"}, "body.created_at"),
            ({"text": "x", "created_at": "9999-12-31T23:59:59-10:00"}, "body.created_at"),
            ({"text": "x" * 1_000_001}, "1,000,001"),
        ):
            status, detail = await server.refused("POST", path, body)
            assert (status, named in detail) == (422, True), detail
        assert await server.get(path) == made


async def test_pages_follow_each_other() -> None:
    """Oldest first by default; forwards and backwards each passage is met once."""
    async with routed() as server:
        agent = await new_agent(server)
        ids = await put_away(server, agent, *(f"note {number}" for number in range(5)))
        path = f"/v1/agents/{agent['id']}/archival-memory"

        async def walk(cursor: str, **params: Any) -> list[str]:
            seen: list[str] = []
            at: dict[str, Any] = {} if cursor == "after" else {"before": params.pop("start")}
            while items := [item["id"] for item in await server.get(path, limit=2, **params, **at)]:
                seen = seen + items if cursor == "after" else items + seen
                at = {cursor: items[-1] if cursor == "after" else items[0]}
            return seen

        assert await walk("after") == ids
        assert await walk("after", ascending=False) == ids[::-1]
        assert await walk("before", start=ids[4]) == ids[:4]
        assert await walk("before", start=ids[0], ascending=False) == ids[:0:-1]
        assert [item["id"] for item in await server.get(path, after=ids[0], before=ids[3])] == ids[1:3]
        assert [item["id"] for item in await server.get(path, search="NOTE 3")] == [ids[3]]
        assert await server.get(path, search="%") == []


async def test_pages_go_on_over_several_archives() -> None:
    """An agent may have more than one; they are shown one after the other."""
    async with routed() as server:
        agent, other = await new_agent(server), await new_agent(server, "other")
        mine, theirs = await put_away(server, agent, "a", "b", "c"), await put_away(server, other, "d", "e", "f")
        store = server.library.app.store
        (archive,) = await store.read(lambda tx: tx.archives.list_by_agent(other["id"]))
        await store.write(lambda tx: tx.archives.attach(agent["id"], archive.id))
        path = f"/v1/agents/{agent['id']}/archival-memory"

        for ascending, expected in ((True, [*mine, *theirs]), (False, [*reversed([*mine, *theirs])])):
            seen: list[str] = []
            after: dict[str, Any] = {}
            while items := [item["id"] for item in await server.get(path, limit=2, ascending=ascending, **after)]:
                seen += items
                after = {"after": items[-1]}
            assert seen == expected
            before = await server.get(path, limit=4, ascending=ascending, before=expected[-1])
            assert [item["id"] for item in before] == expected[1:5]


async def test_search_finds_what_fits() -> None:
    """By words, tags and time; the best first."""
    async with routed() as server:
        agent = await new_agent(server, timezone="Europe/Rome")
        await put_away(server, agent, "The walrus sings", tags=["sea", "song"], created_at="2024-01-01T12:00:00Z")
        await put_away(server, agent, "The walrus sleeps", tags=["sea"], created_at="2024-02-01T12:00:00Z")
        await put_away(server, agent, "A quiet house", created_at="2024-03-01T22:30:00Z")
        path = f"/v1/agents/{agent['id']}/archival-memory/search"

        async def search_contents(query: str = "walrus", **params: Any) -> list[str]:
            answer = await server.get(path, query=query, **params)
            PassageSearchResponse.model_validate(answer)
            assert answer["count"] == len(answer["results"])
            assert all(list(result) == ["id", "timestamp", "content", "tags"] for result in answer["results"])
            return sorted(result["content"] for result in answer["results"])

        sings, sleeps, house = "The walrus sings", "The walrus sleeps", "A quiet house"
        assert await search_contents() == [sings, sleeps]
        assert await search_contents("walrus sings", top_k=1) == [sings]
        assert await search_contents(tags="song") == [sings]
        assert await search_contents(tags=["sea", "song"], tag_match_mode="all") == [sings]
        assert await search_contents(tags=["sea", "song"], tag_match_mode="any") == [sings, sleeps]
        assert await search_contents(start_datetime="2024-01-15") == [sleeps]
        assert await search_contents(end_datetime="2024-01-01") == [sings]
        assert await search_contents(end_datetime="2024-01-01T11:00:00+00:00") == []
        assert await search_contents("house", end_datetime="2024-03-01") == [house]  # half past eleven in Rome
        assert await search_contents("nothing like it") == []

        for params, named in (
            ({}, "query"),
            ({"query": " "}, "empty"),
            ({"query": "x", "top_k": 1_001}, "top_k"),
            ({"query": "x", "top_k": 0}, "top_k"),
            ({"query": "x", "tag_match_mode": "some"}, "tag_match_mode"),
            ({"query": "x", "start_datetime": "soon"}, "soon"),
        ):
            status, detail = await server.refused("GET", path, **params)
            assert (status, named in detail) == (422, True), detail


async def test_deleting_a_passage() -> None:
    """It is gone from list and search; another agent's passage can't be reached."""
    async with routed() as server:
        ann, bob = await new_agent(server, "ann"), await new_agent(server, "bob")
        (mine,) = await put_away(server, ann, "a walrus")
        path = f"/v1/agents/{ann['id']}/archival-memory"

        assert (await server.refused("DELETE", f"/v1/agents/{bob['id']}/archival-memory/{mine}"))[0] == 404
        assert await server.delete(f"{path}/{mine}") == {"message": f"Memory id={mine} successfully deleted"}
        assert await server.get(path) == []
        assert (await server.get(f"{path}/search", query="walrus"))["results"] == []
        assert (await server.refused("DELETE", f"{path}/{mine}"))[0] == 404
        assert (await server.refused("DELETE", f"{path}/x"))[0] == 422


async def test_unknown_agents_have_no_archive() -> None:
    """404 in every route."""
    async with routed() as server:
        path = f"/v1/agents/{NOBODY}/archival-memory"
        passage = "passage-00000000-0000-4000-8000-000000000000"
        assert (await server.refused("GET", path))[0] == 404
        assert (await server.refused("POST", path, {"text": "x"}))[0] == 404
        assert (await server.refused("GET", f"{path}/search", query="x"))[0] == 404
        assert (await server.refused("DELETE", f"{path}/{passage}"))[0] == 404


async def test_the_official_client_has_its_way() -> None:
    """Create, list, search, delete, as its own methods do it."""
    async with routed() as server:
        agent = await new_agent(server)
        passages = server.letta.agents.passages
        (made,) = await passages.create(agent["id"], text="a walrus", tags=["sea"])
        assert made.id is not None
        assert [one.text for one in await passages.list(agent["id"])] == ["a walrus"]
        found = await passages.search(agent["id"], query="walrus", tags=["sea"])
        assert (found.count, found.results[0].id) == (1, made.id)
        await passages.delete(made.id, agent_id=agent["id"])
        assert await passages.list(agent["id"]) == []
