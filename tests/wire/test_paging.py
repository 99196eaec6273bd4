"""Every list of the official client, read page after page as its loops do: complete, and no item twice."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from perdure.core.ids import AgentId
from perdure.core.incoming.limits import DEFAULT_LIMITS
from perdure.core.messages import HISTORY_KINDS, Message
from perdure.library.parts.checks import Page
from perdure.storage.tx import Tx
from perdure.testing import calls, thinks
from tests.server.routed import BASE, Routed, new_agent, routed
from tests.wire.clients import NEWEST, OLD, client_module, list_methods

FULL = os.environ.get("PERDURE_FAULTS") == "full"
COUNT = 300 if FULL else 7
LIMIT = None if FULL else 3
"""Items of each list and of a page; None: the default."""

FOLDERS_MAX = DEFAULT_LIMITS.folders_per_agent

CLOUD = {"access_tokens", "environments"}
WHOLE = {"agents.schedule", "mcp_servers", "mcp_servers.tools", "models", "models.embeddings"}
"""Lists without pages, or with pages that the client does not turn."""

Default = Literal["asc", "desc", "newest", "newest, oldest first"]


@dataclass(frozen=True, slots=True)
class Listed:
    """What a list must contain.

    Args:
        ids: the items, oldest first; others may be there too, if not `exact`.
        default: the order without `order`; `newest`: only the newest page.
    """

    arguments: Mapping[str, Any]
    ids: Sequence[str]
    default: Default = "desc"
    exact: bool = True


@dataclass
class Store:
    """What was made, by list."""

    server: Routed
    lists: dict[str, Listed] = field(default_factory=dict)

    async def many(self, make: Callable[[int], Awaitable[Any]]) -> list[str]:
        """The ids of things that are made one after the other."""
        return [str((await make(number))["id"]) for number in range(COUNT)]

    async def fill(self) -> None:
        """Make everything."""
        await self._shared()
        agent = await new_agent(self.server, "owner", tools=["memory_insert"])
        await self._of_agent(agent["id"])
        await self._talk(agent["id"])

    async def _shared(self) -> None:
        server = self.server
        block = await new_block(server, "shared")
        folder = await server.post("/v1/folders/", {"name": "shared"})

        async def agent(number: int) -> Any:
            made = await new_agent(server, f"agent {number}", block_ids=[block["id"]], tags=[f"t{number:03}"])
            await server.patch(f"/v1/agents/{made['id']}/folders/attach/{folder['id']}")
            return made

        agents = await self.many(agent)
        archives = await self.many(lambda number: server.post("/v1/archives/", {"name": f"archive {number}"}))
        self.lists |= {
            "agents": Listed({}, agents, exact=False),
            "blocks.agents": Listed({"block_id": block["id"]}, agents),
            "folders.agents": Listed({"folder_id": folder["id"]}, agents),
            "archives": Listed({}, archives, exact=False),
            "tags": Listed({}, [f"t{number:03}" for number in range(COUNT)], "asc"),
        }

    async def _of_agent(self, agent_id: str) -> None:
        """Blocks, tools, folders, files and passages of one agent."""
        server, path = self.server, f"/v1/agents/{agent_id}"

        async def attached(kind: str, made: Any) -> Any:
            await server.patch(f"{path}/{kind}/attach/{made['id']}")
            return made

        async def block(number: int) -> Any:
            return await attached("core-memory/blocks", await new_block(server, f"b{number}"))

        async def tool(number: int) -> Any:
            source = f"def tool_{number:03}() -> str:\n    '''Do it.'''\n    return 'x'\n"
            return await attached("tools", await server.post("/v1/tools/", {"source_code": source}))

        async def folder(number: int) -> Any:
            made = await server.post("/v1/folders/", {"name": f"folder {number}"})
            return await attached("folders", made) if number < FOLDERS_MAX else made

        async def passage(number: int) -> Any:
            return (await server.post(f"{path}/archival-memory", {"text": f"passage {number}"}))[0]

        blocks, tools, folders = await self.many(block), await self.many(tool), await self.many(folder)
        upload = f"/v1/folders/{folders[0]}/upload"

        async def file(number: int) -> Any:
            return server._body(await server.http.post(upload, files={"file": (f"{number}.txt", b"text")}))

        files, passages = await self.many(file), await self.many(passage)
        self.lists |= {
            "blocks": Listed({}, blocks, "asc", exact=False),
            "agents.blocks": Listed({"agent_id": agent_id}, blocks, exact=False),
            "tools": Listed({}, tools, exact=False),
            "agents.tools": Listed({"agent_id": agent_id}, tools, exact=False),
            "folders": Listed({}, folders, "asc", exact=False),
            "agents.folders": Listed({"agent_id": agent_id}, folders[:FOLDERS_MAX]),
            "agents.files": Listed({"agent_id": agent_id}, files),
            "folders.files": Listed({"folder_id": folders[0]}, files),
            "agents.passages": Listed({"agent_id": agent_id}, passages, "asc"),
        }

    async def _talk(self, agent_id: str) -> None:
        """A run with many steps, whose answers are several messages on the wire, and many short runs."""
        server, path = self.server, f"/v1/agents/{agent_id}/messages"
        asked = {"input": "go", "streaming": True, "max_steps": COUNT + 1}
        await server.http.post(path, json=asked)
        [long] = await server.get("/v1/runs/")
        steps = [step.id for step in (await server.library.runs.steps_of_run(long["id"], ALL))[1]]

        async def run(number: int) -> Any:
            reply = await server.post(path, {"input": f"message {number}"})
            return {"id": reply["messages"][0]["run_id"]}

        runs = [long["id"], *(await self.many(run))]
        conversations = await self.many(lambda _: server.post(f"/v1/conversations/?agent_id={agent_id}", {}))

        async def system(**query: str) -> list[str]:
            types = {"include_return_message_types": "system_message"}
            return [one["id"] for one in await server.get(path, order="asc", limit=1_000, **types, **query)]

        messages = await every_message(server, agent_id)
        stored = [message.id for message in messages]
        of_run = [message.id for message in messages if message.run_id == long["id"]]
        of_step = [message.id for message in messages if message.step_id == steps[0]]
        self.lists |= {
            "runs": Listed({"agent_id": agent_id}, runs),
            "runs.steps": Listed({"run_id": long["id"]}, steps),
            "steps": Listed({"agent_id": agent_id}, steps, exact=False),
            "runs.messages": Listed({"run_id": long["id"]}, of_run, "asc"),
            "steps.messages": Listed({"step_id": steps[0]}, of_step, "asc"),
            "conversations": Listed({"agent_id": agent_id}, conversations),
            "agents.messages": Listed({"agent_id": agent_id}, [*await system(), *stored], "newest, oldest first"),
            "conversations.messages": Listed(
                {"conversation_id": agent_id}, [*await system(conversation_id="default"), *stored], "newest"
            ),
            "messages": Listed({}, stored, "newest"),
        }


ALL = Page(1_000, ascending=True)


async def new_block(server: Routed, label: str) -> Any:
    return await server.post("/v1/blocks/", {"label": label, "value": ""})


async def every_message(server: Routed, agent_id: str) -> list[Message]:
    """All messages that the history of an agent shows, oldest first."""
    found: list[Message] = []

    def read(tx: Tx) -> Sequence[Message]:
        after = found[-1].seq if found else None
        return tx.messages.list(AgentId(agent_id), after_seq=after, limit=1_000, kinds=HISTORY_KINDS)

    while page := await server.library.app.store.read(read):
        found += page
    return found


async def walk(method: Any, arguments: Mapping[str, Any], order: str | None) -> list[Any]:
    """All items of a list, as the client's loop finds them; a list without a loop is read with `after`."""
    query = dict(arguments) | ({"limit": LIMIT} if LIMIT else {})
    if order is not None:
        query |= order_argument(method, order)
    listed = method(**query)
    if hasattr(listed, "__aiter__"):
        return [item async for item in listed]
    items: list[Any] = []
    page = await listed
    while page:
        items += page
        page = await method(**query, after=key_of(page[-1])[0])
    return items


def order_argument(method: Any, order: str) -> dict[str, Any]:
    """The argument for this order; one list has only the older one."""
    takes_order = "order" in inspect.signature(method).parameters
    return {"order": order} if takes_order else {"ascending": order == "asc"}


def key_of(item: Any) -> tuple[str, str | None]:
    """What tells an item of a list from the others: messages with the same id differ in their `otid`."""
    if isinstance(item, str):
        return item, None
    return str(getattr(item, "file_id", None) or item.id), getattr(item, "otid", None)


def distinct(items: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(key_of(item)[0] for item in items))


def problems(listed: Listed, order: str | None, items: Sequence[Any]) -> list[str]:
    """What is wrong with the items that a loop found."""
    wrong = []
    if len({key_of(item) for item in items}) < len(items):
        wrong.append("an item twice")
    expected = list(listed.ids)
    found = [one for one in distinct(items) if listed.exact or one in {*expected}]
    way = order or listed.default
    if order is None and way.startswith("newest"):
        expected = expected[-(LIMIT or 100) :]
    if way in ("desc", "newest"):
        expected.reverse()
    if found != expected:
        wrong.append(f"{len(found)} items of {len(expected)}, or in another order")
    return wrong


@contextlib.asynccontextmanager
async def filled_store() -> AsyncIterator[Store]:
    """A server with everything in it."""
    script = [thinks("hm", calls("memory_insert", label="b0", new_string="x"))] * (COUNT - 1)
    async with routed(*script) as server:
        store = Store(server)
        await store.fill()
        yield store


async def in_loops(client: Any, store: Store) -> list[str]:
    """What is wrong with all lists in all orders."""
    methods = list_methods(client)
    assert {*methods} - CLOUD - WHOLE == {*store.lists}
    wrong = []
    for path, listed in store.lists.items():
        for order in (None, "asc", "desc"):
            try:
                items = await walk(methods[path], listed.arguments, order)
            except Exception as error:
                wrong.append(f"{path} {order}: {type(error).__name__} {str(error)[:100]}")
                continue
            wrong += [f"{path} {order}: {why}" for why in problems(listed, order, items)]
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("version", [NEWEST, pytest.param(OLD, marks=pytest.mark.skipif(not FULL, reason="slow"))])
async def test_loops_over_lists_are_complete(version: str) -> None:
    """Each list has all its items in both orders, in the default order at least the newest page, and none twice."""
    with client_module(version) as module:
        async with filled_store() as store:
            client = module.AsyncLetta(base_url=BASE, api_key="none", http_client=store.server.http, max_retries=0)
            wrong = await in_loops(client, store)

    assert not wrong, "\n".join(wrong)
