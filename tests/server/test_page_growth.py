"""What a page costs: as many statements for many things as for a few, at every route that lists."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.ids import AgentId
from perdure.server.serving.app import build_document
from perdure.testing import InlineStore
from tests.server.many_things import MANY, fill, look, talkative
from tests.server.routed import Routed, new_agent, routed

FEW = 2
MORE = 2
"""How many statements more a larger page may take: some tables are read only if what is listed has something there."""

WITH: dict[str, dict[str, str]] = {
    "/v1/agents/{agent_id}/memory-sources/writes": {"source": "web:https://one.example"},
    "/v1/agents/{agent_id}/notes/search": {"query": "Ada visited"},
    "/v1/agents/{agent_id}/skills/search": {"query": "skill"},
    "/v1/facts/search": {"query": "Ada visited"},
    "/v1/facts/timeline": {"entity": "Ada"},
}
"""What else a route is asked with."""

BOUNDED = {
    "/v1/agents/{agent_id}/files": "it shows the texts of open files, of which an agent has a handful",
    "/v1/agents/{agent_id}/memory-sources/writes": "it shows what each write says, in blocks, passages and facts",
}
"""Routes that may take a statement for a thing, and why."""

FEWER = {
    "/v1/steps/{step_id}/messages": "a step has two",
    "/v1/groups/{group_id}/messages": "nobody spoke",
    "/v1/agents/{agent_id}/corrections": "nothing was found to correct",
    "/v1/agents/{agent_id}/notes/review": "none is due",
    "/v1/jobs/active": "no work goes on",
    "/v1/agents/{agent_id}/snapshots": "none was made",
    "/v1/agents/{agent_id}/companion/passes": "none was due",
    "/v1/agents/{agent_id}/schedule/{scheduled_message_id}/firings": "none was due",
    "/v1/facts/communities": "there is one",
    "/v1/archives/": "an agent has one",
    "/v1/archives/{archive_id}/agents": "it is one agent's",
    "/v1/sandbox-config/": "there is one",
    "/v1/organizations/": "these are of no agent",
    "/v1/users/": "these are of no agent",
    "/v1/keys/": "these are of no agent",
    "/v1/audit": "these are of no agent",
}
"""Routes of which no long page is there, and why."""


class Counting(InlineStore):
    """A store that counts what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.statements: list[str] = []
        self._connection.set_trace_callback(self._note)

    def _note(self, statement: str) -> None:
        if statement.startswith(("SELECT", "WITH")):
            self.statements.append(statement)


async def count(server: Routed, store: Counting, path: str, **params: Any) -> tuple[int, int]:
    """(things, statements) of a page."""
    store.statements.clear()
    page = await server.get(path, **params)
    lists = [page] if isinstance(page, list) else [value for value in page.values() if isinstance(value, list)]
    return max(map(len, lists)), len(store.statements)


@pytest.mark.slow
@pytest.mark.uses("groups")
@pytest.mark.uses("origins")
async def test_a_page_takes_as_many_statements_as_a_few_things() -> None:
    """At each route of the document that has a `limit`."""
    store, grown, short = Counting(), list[str](), list[str]()
    async with routed(store=store, model=talkative(), tools=[look], embedding="none") as server:
        ids = await fill(server)
        for path, methods in build_document(True)["paths"].items():
            names = {parameter["name"] for parameter in methods.get("get", {}).get("parameters", ())}
            if "limit" not in names or path in BOUNDED or path.count("{") > sum(f"{{{name}}}" in path for name in ids):
                continue
            params = dict(WITH.get(path, {}))
            if "agent_id" in names and "{agent_id}" not in path:
                params["agent_id"] = ids["agent_id"]
            for _ in range(3):  # work in the background reads too
                few = await count(server, store, path.format_map(ids), limit=FEW, **params)
                many = await count(server, store, path.format_map(ids), limit=MANY, **params)
                if abs(many[1] - few[1]) <= MORE:
                    break
            short += [path] if many[0] <= FEW else []
            grown += [f"{path}: {few} and {many} (things, statements)"] if many[1] > few[1] + MORE else []

    assert not grown, "\n".join(grown)
    assert set(short) <= set(FEWER), sorted(set(short) - set(FEWER))


async def test_a_search_of_all_agents_takes_four_statements_for_each() -> None:
    """One for its words, however many, one for related words, one for the texts, one for its hits; none but the first
    where nothing is found."""
    store, counts = Counting(), dict[int, list[int]]()
    async with routed(store=store, model=talkative(), embedding="none") as server:
        for number in range(MANY):
            agent = await new_agent(server, f"agent {number}")
            path = f"/v1/agents/{agent['id']}/messages"
            await server.post(path, {"messages": [{"role": "user", "content": "The boat lies in Bergen."}]})
            if number + 1 in (FEW, MANY):
                for query in ("Bergen", "a boat that lies in Bergen", "walrus"):
                    tries = []
                    for _ in range(3):
                        store.statements.clear()
                        found = await server.post("/v1/messages/search", {"query": query})
                        tries.append(len(store.statements))
                    counts.setdefault(number + 1, []).append(min(tries))

                    assert len(found) == (0 if query == "walrus" else number + 1)
    each = [(many - few) / (MANY - FEW) for few, many in zip(counts[FEW], counts[MANY], strict=True)]
    # With room for what works in the background.
    assert each[0] < 4.9 and each[1] < 4.9 and each[2] < 2.9, counts


async def test_when_many_agents_were_used_last_takes_as_many_statements_as_of_one() -> None:
    """`perdure agent list` asks for all of them."""
    store = Counting()
    async with routed(store=store, model=talkative(), embedding="none") as server:
        agents = [AgentId((await new_agent(server, f"agent {number}"))["id"]) for number in range(MANY)]
        path = f"/v1/agents/{agents[0]}/messages"
        await server.post(path, {"messages": [{"role": "user", "content": "hello"}]})
        counts = []
        for some in (agents[:1], agents):
            store.statements.clear()
            used = await server.library.all_agents.last_used(some)
            counts.append(len(store.statements))
            newest = (await server.get(path, limit=1))[0]["date"]

            assert [*used] == agents[:1] and used[agents[0]].isoformat()[:16] == newest[:16]
    assert counts[0] == counts[1]
