"""The routes of archives and their passages, as clients see them."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest
from letta_client.types import Archive, Passage

from perdure.domain.archives.units import delete_archive_rows
from perdure.library.memory import archives as archives_module
from tests.server.routed import Routed, new_agent, routed

NOWHERE = "archive-00000000-0000-4000-8000-000000000000"

ARCHIVE_FIELDS = [
    *("created_by_id", "last_updated_by_id", "created_at", "updated_at", "name", "description", "organization_id"),
    *("vector_db_provider", "embedding_config", "metadata", "id"),
]
"""Names in the order in which Letta's server sends them."""


async def new_archive(server: Routed, name: str = "notes", **fields: Any) -> Any:
    return await server.post("/v1/archives/", {"name": name, **fields})


async def test_an_archive_has_all_fields_of_the_wire() -> None:
    """What was asked for is told beside what is here: no vectors, so no embedding configuration."""
    async with routed() as server:
        made = await new_archive(server, "ar", description="d", embedding="openai/text-embedding-3-small")
        Archive.model_validate(made)

        assert list(made)[: len(ARCHIVE_FIELDS)] == ARCHIVE_FIELDS
        assert (made["name"], made["description"], made["vector_db_provider"]) == ("ar", "d", "native")
        assert (made["embedding_config"], made["embedding"]) == (None, "openai/text-embedding-3-small")
        assert made["metadata"] is None
        assert await server.get(f"/v1/archives/{made['id']}") == made


async def test_what_is_not_given_stays() -> None:
    """Name, description and metadata change one by one; what the wire keeps besides is not lost by it."""
    async with routed() as server:
        made = await new_archive(server, embedding="x/y", metadata={"a": 1})
        path = f"/v1/archives/{made['id']}"
        assert (await server.patch(path, {"description": "of the sea"}))["name"] == "notes"
        changed = await server.patch(path, {"name": "maps", "metadata": {"b": 2}})

        told = [changed[name] for name in ("name", "description", "metadata", "embedding")]
        assert told == ["maps", "of the sea", {"b": 2}, "x/y"]


async def test_an_archive_lists_the_agents_that_have_it() -> None:
    """As whole agents, newest first by default, in pages."""
    async with routed() as server:
        archive = await new_archive(server, "a")
        agents = [await new_agent(server, name) for name in ("ann", "ben", "eve")]
        for agent in agents[:2]:
            await server.patch(f"/v1/agents/{agent['id']}/archives/attach/{archive['id']}")
        path = f"/v1/archives/{archive['id']}/agents"

        assert [one["name"] for one in await server.get(path)] == ["ben", "ann"]
        assert [one["name"] for one in await server.get(path, order="asc", limit=1)] == ["ann"]
        assert (await server.refused("GET", "/v1/archives/archive-123e4567-e89b-42d3-a456-426614174000/agents"))[
            0
        ] == 404


async def test_archives_come_in_pages() -> None:
    """Forwards and backwards, in both orders, each is met once; by name and by agent."""
    async with routed() as server:
        agent = await new_agent(server)
        ids = [(await new_archive(server, name))["id"] for name in ("a", "b", "c", "d", "c")]
        for archive_id in ids[1:3]:
            await server.patch(f"/v1/agents/{agent['id']}/archives/attach/{archive_id}")

        async def walk(cursor: str, order: str, start: str | None = None) -> list[str]:
            seen: list[str] = []
            at = {} if start is None else {cursor: start}
            while page := [one["id"] for one in await server.get("/v1/archives/", limit=2, order=order, **at)]:
                seen = seen + page if cursor == "after" else page + seen
                at = {cursor: page[-1] if cursor == "after" else page[0]}
            return seen

        assert await walk("after", "asc") == ids
        assert await walk("after", "desc") == ids[::-1]
        assert await walk("before", "asc", ids[4]) == ids[:4]
        assert await walk("before", "desc", ids[0]) == ids[:0:-1]
        assert [one["id"] for one in await server.get("/v1/archives/", name="c", order="asc")] == [ids[2], ids[4]]
        assert [one["id"] for one in await server.get("/v1/archives/", agent_id=agent["id"])] == [ids[2], ids[1]]


async def test_passages_of_an_archive() -> None:
    """One and many are put in, listed, changed, found by an agent that has the archive, and deleted."""
    async with routed() as server:
        archive, agent = await new_archive(server), await new_agent(server)
        path = f"/v1/archives/{archive['id']}/passages"
        one = await server.post(path, {"text": "Io has volcanoes.", "tags": ["moon"], "metadata": {"size": 3}})
        Passage.model_validate(one)
        many = await server.post(f"{path}/batch", {"passages": [{"text": "Ada"}, {"text": "Bob", "tags": ["moon"]}]})
        ids = [one["id"], *(passage["id"] for passage in many)]

        assert (one["archive_id"], one["metadata"], one["embedding"]) == (archive["id"], {"size": 3}, None)
        assert [passage["id"] for passage in await server.get(path)] == ids
        assert [passage["id"] for passage in await server.get(path, order="desc", limit=2)] == ids[:0:-1]
        assert [passage["id"] for passage in await server.get(path, after=ids[0], before=ids[2])] == [ids[1]]
        assert [passage["id"] for passage in await server.get(path, tags=["moon"], search="b")] == [ids[2]]

        await server.patch(f"/v1/agents/{agent['id']}/archives/attach/{archive['id']}")
        search = f"/v1/agents/{agent['id']}/archival-memory/search"
        changed = await server.patch(f"{path}/{ids[0]}", {"text": "Io has geysers.", "tags": ["io"]})
        assert (changed["text"], changed["tags"], changed["metadata"]) == ("Io has geysers.", ["io"], {"size": 3})
        assert [hit["id"] for hit in (await server.get(search, query="geysers"))["results"]] == [ids[0]]
        assert (await server.get(search, query="volcanoes"))["count"] == 0

        assert (await server.http.delete(f"{path}/{ids[0]}")).status_code == 204
        assert (await server.get(search, query="geysers"))["count"] == 0
        await server.patch(f"/v1/agents/{agent['id']}/archives/detach/{archive['id']}")
        assert (await server.get(search, query="Ada"))["count"] == 0
        assert (await server.get(f"/v1/archives/{archive['id']}"))["passage_count"] == 2


async def test_a_passage_of_an_agent_can_be_changed() -> None:
    """The answer is a list of one, as when it is made; another agent can't reach it."""
    async with routed() as server:
        ann, bob = await new_agent(server, "ann"), await new_agent(server, "bob")
        (made,) = await server.post(f"/v1/agents/{ann['id']}/archival-memory", {"text": "a walrus"})
        (changed,) = await server.patch(
            f"/v1/agents/{ann['id']}/archival-memory/{made['id']}", {"created_at": "2020-01-01T00:00:00Z"}
        )

        assert (changed["text"], changed["created_at"]) == ("a walrus", "2020-01-01T00:00:00.000000Z")
        path = f"/v1/agents/{bob['id']}/archival-memory/{made['id']}"
        assert (await server.refused("PATCH", path, {"text": "x"}))[0] == 404


async def test_passages_are_deleted_by_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run counts them; then they go, in batches; without a condition nothing does."""
    monkeypatch.setattr(archives_module, "BATCH", 2)
    async with routed() as server:
        archive = await new_archive(server)
        path = f"/v1/archives/{archive['id']}/passages"
        texts = [
            {"text": f"Draft {number}", "tags": ["old"], "created_at": f"2024-0{1 + number % 2}-01T00:00:00Z"}
            for number in range(7)
        ]
        await server.post(f"{path}/batch", {"passages": [*texts, {"text": "draft", "tags": ["new"]}]})

        async def deleted(**body: Any) -> int:
            answer = await server.post(f"{path}/delete", body)
            assert answer["deleted"] == (0 if body.get("dry_run") else answer["matched"])
            matched: int = answer["matched"]
            return matched

        assert await deleted(text="DRAFT", dry_run=True) == 8
        assert await deleted(tags=["old"], start_date="2024-02-01", end_date="2024-02-01") == 3
        assert await deleted(text="draft", tags=["old"]) == 4
        assert [passage["text"] for passage in await server.get(path)] == ["draft"]
        for body, named in (
            ({}, "delete the archive"),
            ({"text": "", "tags": [], "dry_run": True}, "delete the archive"),
            ({"end_date": "soon"}, "soon"),
            ({"tag_match_mode": "some"}, "tag_match_mode"),
        ):
            status, detail = await server.refused("POST", f"{path}/delete", body)
            assert (status, named in detail) == (422, True), detail


async def test_an_archive_goes_with_its_passages(monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches, after it was taken from its agents; what was begun and broken off goes on when asked again."""
    monkeypatch.setattr(archives_module, "BATCH", 2)
    async with routed() as server:
        archive, agent = await new_archive(server), await new_agent(server)
        path = f"/v1/archives/{archive['id']}"
        await server.post(f"{path}/passages/batch", {"passages": [{"text": f"note {n}"} for n in range(5)]})
        await server.patch(f"/v1/agents/{agent['id']}/archives/attach/{archive['id']}")
        store = server.library.app.store
        for _ in range(2):
            await store.write(delete_archive_rows, archive["id"], limit=2, at=server.library.app.ports.clock.now())

        assert await store.read(lambda tx: tx.archives.list_by_agent(agent["id"])) == []
        assert (await server.get(path))["passage_count"] == 3
        assert (await server.http.delete(path)).status_code == 204
        assert (await server.refused("GET", path))[0] == 404
        assert (await server.refused("DELETE", path))[0] == 404
        assert await server.get("/v1/archives/") == []


async def test_awkward_texts_are_kept_and_found() -> None:
    """NUL and half a surrogate pair come back as they went in, in passages and in names, and their words are found."""
    async with routed() as server:
        text = "a walrus\0 and half a \ud83d pair"
        archive = await server.post_raw("/v1/archives/", {"name": text})
        path = f"/v1/archives/{archive['id']}/passages"
        made = await server.post_raw(path, {"text": text, "tags": [text]})
        assert (archive["name"], made["text"], made["tags"]) == (text, text, [text])
        agent = await new_agent(server)
        await server.patch(f"/v1/agents/{agent['id']}/archives/attach/{archive['id']}")

        found = await server.get(f"/v1/agents/{agent['id']}/archival-memory/search", query="walrus")
        assert [hit["content"] for hit in found["results"]] == [text]
        assert await server.get(path) == [made]


async def test_what_can_t_be_is_refused() -> None:
    """Each with its status and what was wrong; nothing is written."""
    async with routed() as server:
        archive, agent = await new_archive(server), await new_agent(server)
        path, passages = f"/v1/archives/{archive['id']}", f"/v1/archives/{archive['id']}/passages"
        passage = "passage-00000000-0000-4000-8000-000000000000"
        other = await new_archive(server)
        theirs = await server.post(f"/v1/archives/{other['id']}/passages", {"text": "x"})
        cases: list[tuple[str, str, Any, int, str]] = [
            ("POST", "/v1/archives/", {}, 422, "body.name"),
            ("POST", "/v1/archives/", {"name": " "}, 422, "name"),
            ("POST", "/v1/archives/", {"name": "x" * 501}, 422, "501"),
            ("POST", "/v1/archives/", {"name": 5}, 422, "body.name"),
            ("GET", "/v1/archives/nowhere", None, 422, "archive-{uuid4}"),
            ("GET", f"/v1/archives/{NOWHERE}", None, 404, NOWHERE),
            ("PATCH", f"/v1/archives/{NOWHERE}", {"name": "x"}, 404, NOWHERE),
            ("DELETE", f"/v1/archives/{NOWHERE}", None, 404, NOWHERE),
            ("GET", f"/v1/archives/?after={NOWHERE}", None, 404, NOWHERE),
            ("GET", "/v1/archives/?limit=0", None, 422, "limit"),
            ("POST", f"/v1/archives/{NOWHERE}/passages", {"text": "x"}, 404, NOWHERE),
            ("POST", f"/v1/archives/{NOWHERE}/passages/batch", {"passages": []}, 404, NOWHERE),
            ("POST", f"/v1/archives/{NOWHERE}/passages/delete", {"text": "x"}, 404, NOWHERE),
            ("GET", f"/v1/archives/{NOWHERE}/passages", None, 404, NOWHERE),
            ("PATCH", f"/v1/agents/{agent['id']}/archives/attach/{NOWHERE}", None, 404, NOWHERE),
            ("PATCH", f"/v1/agents/{agent['id']}/archives/detach/{NOWHERE}", None, 404, NOWHERE),
            ("PATCH", path, {"name": ""}, 422, "name"),
            ("POST", passages, {"text": ""}, 422, "empty"),
            ("POST", passages, {"text": "x" * 1_000_001}, 422, "1,000,000"),
            ("POST", passages, {"text": "x", "embedding": [0.1, 0.2, 0.3]}, 422, "3 numbers"),
            ("POST", passages, {"text": "x", "embedding": []}, 422, "embedding"),
            ("POST", f"{passages}/batch", {"passages": [{"text": "x"}, {"text": ""}]}, 422, "passage 1"),
            ("PATCH", f"{passages}/{passage}", {"text": "x"}, 404, passage),
            ("PATCH", f"{passages}/{theirs['id']}", {"text": "x"}, 404, theirs["id"]),
            ("DELETE", f"{passages}/{theirs['id']}", None, 404, theirs["id"]),
        ]
        for method, where, body, status, named in cases:
            plain, _, asked = where.partition("?")
            got = await server.refused(method, plain, body, **dict(parse_qsl(asked)))
            assert got[0] == status, (method, where, got)
            assert named in got[1], (method, where, got)
        assert await server.get(passages) == []
        assert await server.get(path) == archive


async def test_a_vector_must_be_as_long_as_the_archive_s() -> None:
    """One that fits is stored with its text; another is refused with both numbers, and the text is not stored."""
    async with routed() as server:
        archive = await new_archive(server)
        passages = f"/v1/archives/{archive['id']}/passages"
        store = server.library.app.store

        def open_scope(tx: Any) -> None:
            number = tx.archives.get(archive["id"]).number
            tx.vectors.open(number, "archive", archive["id"], "test/three")
            (first,) = tx.passages.page(archive["id"])
            tx.vectors.put(number, [(first.seq, bytes(6))], model="test/three", dimensions=3)

        await server.post(passages, {"text": "first"})
        await store.write(open_scope)
        await server.post(passages, {"text": "second", "embedding": [3, 0, -4]})
        status, detail = await server.refused("POST", passages, {"text": "third", "embedding": [1, 2]})

        assert status == 422
        assert "3 dimensions" in detail
        assert "2" in detail
        assert (await server.refused("POST", passages, {"text": "x", "embedding": [0, 0, 0]}))[0] == 422
        assert [passage["text"] for passage in await server.get(passages)] == ["first", "second"]
        scope = await store.read(lambda tx: tx.vectors.scope(tx.archives.get(archive["id"]).number))
        assert scope is not None
        assert scope.row_count == 2
