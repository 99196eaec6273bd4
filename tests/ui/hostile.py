"""A store in which every text of others is one that would run in a page that does not escape it."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace

from benchmarks.dashboard import paths_of
from perdure import AsyncAgent, AsyncPerdure
from perdure.core.errors import PerdureError
from perdure.core.ids import McpServerId, ProviderId
from perdure.core.models import ModelProvider
from perdure.features.facts.tables import Entities
from perdure.features.facts.units.graphs import graph_of_agent
from perdure.features.facts.values.facts import FACT_STATES
from perdure.features.mcp.units import register_server, sync_tools
from perdure.features.mcp.values import InvalidEntry, McpServer, ToolDefinition, ToolListing
from perdure.storage.tx import Tx
from tests.ui.payloads import PAYLOADS

WHOLE = "\n".join(PAYLOADS)


def pay(text: str) -> str:
    """Pay.

    Args:
        text: for what.
    """
    return text


async def fill_hostile(library: AsyncPerdure) -> list[str]:
    """Put the payloads wherever the store takes them, and return the paths of all pages. The model's script answers
    three messages, the last of which fails."""
    agent = await library.create_agent("Ada", human=WHOLE, description=WHOLE, tags=PAYLOADS[:20])
    await agent.archive(WHOLE, tags=PAYLOADS[:20])
    await agent.require_approval("pay")
    for _ in range(2):
        await agent.send(WHOLE)
    folder = await library.folders.create("files")
    for payload in PAYLOADS:
        await library.archives.create(payload)
        with contextlib.suppress(PerdureError):  # what a folder's or file's name can't be
            await library.folders.create(payload)
        with contextlib.suppress(PerdureError):
            await library.folders.by_id(folder.id).upload(io.BytesIO(b"x"), name=f"{payload}.txt")
    await agent.files.attach(folder.id)
    await agent.schedules.create(WHOLE, every=3_600, name=PAYLOADS[0])
    group = await library.groups.create("round_robin", agents=[agent], description=WHOLE)
    await agent.update(settings={"extra": {"x": WHOLE}, "bypass_session_patterns": PAYLOADS}, system=WHOLE)
    await _add_connections(library)
    await _add_facts(library, agent)
    failing = await library.create_agent("Bob")
    with contextlib.suppress(PerdureError):
        await failing.send("hello")
    failed = (await failing.steps())[0].run_id
    return [
        *await paths_of(agent),
        f"/runs/{failed}",
        f"/agents/{failing.id}",
        f"/data?folder={folder.id}",
        f"/groups?group={group.id}",
        f"/agents/{agent.id}/files?q={PAYLOADS[6][:9]}",
        f"/search?q={PAYLOADS[6][:9]}",
        *(f"/agents/{agent.id}/facts?state={state}" for state in ("proposed", "archived")),
        f"/agents/{agent.id}/facts?entity={PAYLOADS[0]}&relation={PAYLOADS[0]}",
        f"/agents/{agent.id}/facts?q={PAYLOADS[0]}",
        f"/agents/{agent.id}/facts/profile?user={PAYLOADS[0]}",
        f"/why?of={(await agent.facts.list(limit=1))[0].fact.id}",
    ]


async def _add_facts(library: AsyncPerdure, agent: AsyncAgent) -> None:
    """Sentences, entities with their types, summaries and other names, communities, and rules."""
    ports = library.app.ports
    for place, payload in enumerate(PAYLOADS):
        state = FACT_STATES[place % len(FACT_STATES)]
        await agent.facts.add_fact(payload, subject=f"{payload}1", object_=f"{payload}2", state=state)
        await agent.facts.add_rule(payload)

    def rename(tx: Tx) -> None:
        graph = graph_of_agent(tx, agent.id, ids=ports.ids, at=ports.clock.now())
        for entity in tx.of(Entities).list(graph.id):
            tx.of(Entities).put(replace(entity, type=WHOLE, summary=WHOLE, aliases=PAYLOADS[:5]))
        for community in tx.of(Entities).list_communities(graph.id):
            tx.of(Entities).put_community(replace(community, name=WHOLE, summary=WHOLE))

    await ports.store.write(rename)


def _add_provider(tx: Tx, provider: ModelProvider) -> None:
    tx.providers.add(provider)


async def _add_connections(library: AsyncPerdure) -> None:
    """Providers and MCP servers, past the checks of their names; the definitions of the tools change."""
    ports, org_id = library.app.ports, (await library.agents())[0].info.org_id
    now = ports.clock.now()
    for payload in PAYLOADS:
        provider = ModelProvider(
            id=ProviderId(ports.ids.new("provider")),
            org_id=org_id,
            name=payload,
            provider_type=payload,
            base_url=payload,
            created_at=now,
            updated_at=now,
        )
        await ports.store.write(_add_provider, provider)
    server = McpServer(
        id=McpServerId(ports.ids.new("mcp_server")),
        org_id=org_id,
        name=WHOLE,
        transport="stdio",
        command=WHOLE,
        args=PAYLOADS,
        failure=WHOLE,
        created_at=now,
        updated_at=now,
    )
    definitions = [ToolDefinition(name=one, description=WHOLE, parameters={"type": "object"}) for one in PAYLOADS]
    listing = ToolListing(definitions=definitions, left_out=(InvalidEntry(name=WHOLE, reason=WHOLE),))
    await ports.store.write(register_server, server, listing, ids=ports.ids, at=now)
    changed = [replace(one, description=f"{WHOLE}.", parameters={"title": WHOLE}) for one in definitions]
    await ports.store.write(sync_tools, server.id, replace(listing, definitions=changed), ids=ports.ids, at=now)
