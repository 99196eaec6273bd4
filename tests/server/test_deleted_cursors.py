"""Lists that a client reads page after page while it deletes what it reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.storage.tables.table import PLACES_KEPT_S, deleted_place, keep_places
from perdure.testing import says
from tests.server.routed import MODEL, Routed, new_agent, routed

COUNT = 5
SOURCE = 'def f{0}(x: str) -> str:\n    """Do.\n\n    Args:\n        x: value\n    """\n    return x\n'
MESSAGE = [{"role": "user", "content": "hello"}]
LATER = {"type": "one-time", "scheduled_at": 4_000_000_000_000.0}


async def _tool(server: Routed, number: int, _: str) -> Any:
    return await server.post("/v1/tools/", {"source_code": SOURCE.format(number), "tags": ["mine"]})


async def _passage(server: Routed, number: int, owner: str) -> Any:
    return (await server.post(f"/v1/agents/{owner}/archival-memory", {"text": f"text {number}"}))[0]


async def _conversation(server: Routed, number: int, owner: str) -> Any:
    return server._body(await server.http.post("/v1/conversations/", params={"agent_id": owner}, json={}))


async def _run(server: Routed, number: int, owner: str) -> Any:
    answer = await server.post(f"/v1/agents/{owner}/messages", {"messages": MESSAGE})
    return {"id": answer["messages"][0]["run_id"]}


async def _group(server: Routed, number: int, owner: str) -> Any:
    body = {"agent_ids": [owner], "description": f"group {number}"}
    return await server.post("/v1/groups/", body)


def _of(path: str, **body: Any) -> Callable[[Routed, int, str], Awaitable[Any]]:
    async def make(server: Routed, number: int, owner: str) -> Any:
        filled = {name: value.format(number) if isinstance(value, str) else value for name, value in body.items()}
        return await server.post(path.format(owner=owner), filled)

    return make


KINDS: dict[str, tuple[Callable[[Routed, int, str], Awaitable[Any]], str, str]] = {
    "agents": (_of("/v1/agents/", name="a{0}", model=MODEL, tags=["mine"]), "/v1/agents/?tags=mine", "/v1/agents/{id}"),
    "blocks": (_of("/v1/blocks/", label="l{0}", value="v"), "/v1/blocks/?", "/v1/blocks/{id}"),
    "tools": (_tool, "/v1/tools/?names=f0&names=f1&names=f2&names=f3&names=f4", "/v1/tools/{id}"),
    "folders": (_of("/v1/folders/", name="f{0}"), "/v1/folders/?", "/v1/folders/{id}"),
    "archives": (_of("/v1/archives/", name="r{0}"), "/v1/archives/?", "/v1/archives/{id}"),
    "passages": (_passage, "/v1/agents/{owner}/archival-memory?", "/v1/agents/{owner}/archival-memory/{id}"),
    "identities": (
        _of("/v1/identities/", identifier_key="k{0}", name="n", identity_type="user"),
        "/v1/identities/?",
        "/v1/identities/{id}",
    ),
    "groups": (_group, "/v1/groups/?", "/v1/groups/{id}"),
    "conversations": (_conversation, "/v1/conversations/?agent_id={owner}", "/v1/conversations/{id}"),
    "runs": (_run, "/v1/runs/?agent_id={owner}", "/v1/runs/{id}"),
    "providers": (
        _of("/v1/providers/", name="p{0}", provider_type="openai", api_key="x"),
        "/v1/providers/?",
        "/v1/providers/{id}",
    ),
}


USES = {"folders": pytest.mark.uses("files"), "groups": pytest.mark.uses("groups")}
"""Kind of things -> the feature that they are of."""


@pytest.mark.slow
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=USES.get(kind, ())) for kind in KINDS])
async def test_a_list_goes_on_behind_what_was_deleted(kind: str, order: str) -> None:
    """Each thing is met once, though the cursor of every page names a thing that is gone."""
    make, list_path, delete_path = KINDS[kind]
    async with routed(*[says("hello")] * COUNT) as server:
        owner = (await new_agent(server, "owner"))["id"]
        made = [(await make(server, number, owner))["id"] for number in range(COUNT)]
        seen: list[str] = []
        path = f"{list_path.format(owner=owner)}&order={order}&limit=2"
        after = ""
        while page := server._body(await server.http.get(path + after)):
            for item in page:
                (await server.http.delete(delete_path.format(id=item["id"], owner=owner))).raise_for_status()
            seen += [item["id"] for item in page]
            after = f"&after={page[-1]['id']}"

        assert seen == (made if order == "asc" else made[::-1])


ATTACHED: dict[str, tuple[Callable[[Routed, int, str], Awaitable[Any]], str, str]] = {
    "blocks": (KINDS["blocks"][0], "/v1/agents/{owner}/core-memory/blocks", "/v1/agents/{owner}/core-memory/blocks"),
    "tools": (KINDS["tools"][0], "/v1/agents/{owner}/tools", "/v1/agents/{owner}/tools"),
    "folders": (KINDS["folders"][0], "/v1/agents/{owner}/folders", "/v1/agents/{owner}/folders"),
    "archives": (KINDS["archives"][0], "/v1/archives/?agent_id={owner}", "/v1/agents/{owner}/archives"),
}
"""Kind -> how to make one, the list of those of an agent, and where they are attached and detached."""


@pytest.mark.slow
@pytest.mark.uses("files")
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("end", ["detach", "delete"])
@pytest.mark.parametrize("kind", ATTACHED)
async def test_a_list_of_an_agent_goes_on_behind_what_was_detached(kind: str, end: str, order: str) -> None:
    """The same for what an agent has: a thing that is detached or deleted, and then names the next page."""
    make, list_path, links = ATTACHED[kind]
    async with routed() as server:
        owner = (await new_agent(server, "owner", include_base_tools=False, memory_blocks=[]))["id"]
        made = [(await make(server, number, owner))["id"] for number in range(COUNT)]
        for id_ in (made[2], *made[:2], *made[3:]):  # the order in which they are attached is not the list's
            path = f"{links.format(owner=owner)}/attach/{id_}"
            (await server.http.patch(path)).raise_for_status()
        seen: list[str] = []
        path = list_path.format(owner=owner)
        path += f"{'&' if '?' in path else '?'}order={order}&limit=2"
        after = ""
        while page := server._body(await server.http.get(path + after)):
            for item in page:
                if end == "detach":
                    gone = await server.http.patch(f"{links.format(owner=owner)}/detach/{item['id']}")
                else:
                    gone = await server.http.delete(KINDS[kind][2].format(id=item["id"], owner=owner))
                gone.raise_for_status()
            seen += [item["id"] for item in page]
            after = f"&after={page[-1]['id']}"

        assert seen == (made if order == "asc" else made[::-1])


@pytest.mark.uses("files")
async def test_the_agents_of_a_folder_go_on_behind_one_that_was_detached() -> None:
    async with routed() as server:
        folder = (await server.post("/v1/folders/", {"name": "f"}))["id"]
        made = [(await new_agent(server, f"a{number}", folder_ids=[folder]))["id"] for number in range(3)]
        await server.patch(f"/v1/agents/{made[1]}/folders/detach/{folder}", {})

        assert await server.get(f"/v1/folders/{folder}/agents", order="asc", after=made[1]) == [made[2]]


@pytest.mark.uses("files", "schedules")
async def test_files_and_schedules_go_on_behind_what_was_deleted() -> None:
    """The same where a list has a cursor of another kind: of files within a folder, of schedules across agents."""
    async with routed() as server:
        owner = (await new_agent(server, "owner"))["id"]
        folder = (await server.post("/v1/folders/", {"name": "f"}))["id"]
        for number in range(3):
            upload = {"file": (f"{number}.txt", b"text")}
            (await server.http.post(f"/v1/folders/{folder}/upload", files=upload)).raise_for_status()
            body = {"messages": MESSAGE, "schedule": LATER}
            await server.post(f"/v1/agents/{owner}/schedule", body)
        files = await server.get(f"/v1/folders/{folder}/files", order="asc")
        (await server.http.delete(f"/v1/folders/{folder}/{files[1]['id']}")).raise_for_status()
        others = (await server.post("/v1/folders/", {"name": "other"}))["id"]

        left = await server.get(f"/v1/folders/{folder}/files", order="asc", after=files[1]["id"])
        status, _ = await server.refused("GET", f"/v1/folders/{others}/files", after=files[1]["id"])

        assert [one["id"] for one in left] == [files[2]["id"]]
        assert status == 404  # a file of another folder is no cursor

        listed = (await server.get(f"/v1/agents/{owner}/schedule"))["scheduled_messages"]
        await server.delete(f"/v1/agents/{owner}/schedule/{listed[1]['id']}")
        left = await server.get(f"/v1/agents/{owner}/schedule", after=listed[1]["id"])

        assert [one["id"] for one in left["scheduled_messages"]] == [listed[2]["id"]]


async def test_the_place_of_a_deleted_thing_is_kept_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it goes with the next deletion."""
    async with routed() as server:
        store = server.library._app.ports.store

        def keep(tx: Any) -> None:
            keep_places(tx.blocks._db, tx.blocks._org_id, {"block-1": {"number": 1}})

        def kept(tx: Any) -> Any:
            return deleted_place(tx.blocks._db, tx.blocks._org_id, "block-1", ("number",))

        await store.write(keep)
        assert await store.read(kept) == [(1,)]

        monkeypatch.setattr("time.time", lambda now=__import__("time").time(): now + PLACES_KEPT_S + 1)
        block = (await server.post("/v1/blocks/", {"label": "l", "value": "v"}))["id"]
        await server.delete(f"/v1/blocks/{block}")

        assert await store.read(kept) == []


@pytest.mark.uses("files")
async def test_the_official_client_deletes_what_it_iterates_over() -> None:
    """Its loops turn the pages themselves."""
    async with routed() as server:
        letta = server.letta
        for number in range(COUNT):
            await new_agent(server, f"agent {number}", tags=["mine"])
            await server.post("/v1/blocks/", {"label": f"l{number}", "value": "v"})
            await server.post("/v1/folders/", {"name": f"f{number}"})
            await server.post("/v1/archives/", {"name": f"r{number}"})
            await _tool(server, number, "")
        names = [f"f{number}" for number in range(COUNT)]
        lists: list[tuple[Any, Callable[[], Any]]] = [
            (letta.agents, lambda: letta.agents.list(limit=2, tags=["mine"])),
            (letta.blocks, lambda: letta.blocks.list(limit=2)),
            (letta.folders, lambda: letta.folders.list(limit=2)),
            (letta.archives, lambda: letta.archives.list(limit=2)),
            (letta.tools, lambda: letta.tools.list(limit=2, names=names)),
        ]
        for things, page in lists:
            async for one in page():
                await things.delete(one.id)

            assert [one async for one in page()] == [], things
