"""A store with many things of every kind that is listed, and the ids by which the paths of routes name their owners."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.core.ids import AgentId
from perdure.core.sources import MemoryWrite, Source, WriteSource
from perdure.testing import ScriptedModel, calls, says
from tests.server.routed import Routed, new_agent

MANY = 8

_SOURCE = 'def {}(text: str) -> str:\n    """Say.\n\n    Args:\n        text: a text.\n    """\n    return text\n'
_HELLO = [{"role": "user", "content": "hello"}]
_NEW: dict[str, tuple[str, dict[str, Any]]] = {
    "block": ("blocks", {"label": "b{}", "value": "v"}),
    "tool": ("tools", {"source_code": _SOURCE.format("t{}")}),
    "folder": ("folders", {"name": "f{}"}),
    "archive": ("archives", {"name": "a{}"}),
    "identity": ("identities", {"identifier_key": "k{}", "name": "n{}", "identity_type": "user"}),
    "provider": ("providers", {"name": "p{}", "provider_type": "openai", "api_key": "k"}),
}
_QUIET_TURNS = 4 * MANY - 1
"""Of the first agent, after which all answers are calls."""


def look() -> str:
    """Look around."""
    return "trees"


def talkative() -> ScriptedModel:
    """A model whose first run has many steps, and which calls for good after the first agent has spoken."""
    return ScriptedModel(*[calls("look")] * MANY, *[says("ok")] * _QUIET_TURNS, otherwise=calls("look"))


async def fill(server: Routed) -> dict[str, str]:
    """Make them; return the ids. The server has `look` and `talkative`."""
    made = {kind: [await _make(server, kind, number) for number in range(MANY)] for kind in _NEW}
    look_id = (await server.get("/v1/tools/", name="look"))[0]["id"]
    agents = []
    for number in range(MANY):
        agent = await new_agent(
            server,
            f"agent {number}",
            block_ids=made["block"],
            tool_ids=[look_id, *made["tool"]],
            folder_ids=made["folder"] if number == 0 else made["folder"][:2],
            identity_ids=made["identity"],
            secrets={"SECRET": "x"},
            tags=[f"tag {number}"],
            tool_rules=[{"type": "requires_approval", "tool_name": "look"}] if number else [],
        )
        agents.append(AgentId(agent["id"]))
    ids = {f"{kind}_id": many[0] for kind, many in made.items()} | {"agent_id": agents[0]}
    blocks = {"identifier_key": "k0", "name": "n0", "identity_type": "user", "block_ids": made["block"]}
    await server.put("/v1/identities/", blocks)
    ids |= await _talk(server, agents)
    await _remember(server, agents[0], made["archive"][0], made["folder"][0])
    config = await server.library.sandbox.put(None)
    for number in range(MANY):
        await server.library.sandbox.add_variable(config.id, f"V{number}", "x", None)
    return ids | {"sandbox_config_id": config.id}


async def _make(server: Routed, kind: str, number: int) -> str:
    path, body = _NEW[kind]
    made = await server.post(f"/v1/{path}/", {name: value.replace("{}", str(number)) for name, value in body.items()})
    return str(made["id"])


async def _talk(server: Routed, agents: list[AgentId]) -> dict[str, str]:
    """Runs, conversations, groups, schedules and batches; all agents but the first wait for an approval."""
    first = agents[0]
    run = await server.post(f"/v1/agents/{first}/messages", {"messages": _HELLO})
    conversation = (await server.post(f"/v1/conversations/?agent_id={first}", {}))["id"]
    for _ in range(MANY):
        await server.post(f"/v1/conversations/?agent_id={first}", {})
        await server.post(f"/v1/agents/{first}/messages", {"messages": _HELLO})
        await server.post(f"/v1/conversations/{conversation}/messages", {"messages": _HELLO, "streaming": False})
        await server.post(
            f"/v1/agents/{first}/schedule", {"messages": _HELLO, "schedule": {"scheduled_at": 4_000_000_000}}
        )
        group = await server.post("/v1/groups/", {"agent_ids": agents[:2], "description": "g"})
    part = {"agent_id": first, "messages": _HELLO}
    batches = [
        await server.post("/v1/messages/batches", {"requests": [part] * size}) for size in (MANY, *[1] * (MANY - 1))
    ]
    while await server.get("/v1/runs/active", agent_ids=[first]):  # noqa: ASYNC110, they run in this loop
        await asyncio.sleep(0.01)
    for agent in agents[1:]:
        await server.post(f"/v1/agents/{agent}/messages", {"messages": _HELLO})
    for message in await server.get(f"/v1/agents/{first}/messages", limit=2 * MANY):
        if message["message_type"] == "assistant_message":
            change = {"message_type": "assistant_message", "content": "edited"}
            await server.patch(f"/v1/agents/{first}/messages/{message['id']}", change)
    run_id = run["messages"][0]["run_id"]
    steps = await server.get(f"/v1/runs/{run_id}/steps")
    return {
        "run_id": run_id,
        "step_id": steps[0]["id"],
        "conversation_id": conversation,
        "group_id": group["id"],
        "batch_id": batches[0]["id"],
    }


async def _remember(server: Routed, agent_id: AgentId, archive_id: str, folder_id: str) -> None:
    """Passages, facts, files, sources and corrections."""
    for number in range(MANY):
        note = {"kind": "doc", "title": f"Note {number}", "fields": {"text": "Ada visited Turin."}}
        await server.post(f"/v1/agents/{agent_id}/notes", note)
    agent = await server.library.agent(agent_id)
    await agent.tools.attach("propose_change")
    for number in range(MANY):
        change = {"label": "b0", "new_value": str(number), "reason": "r", "evidence": "e"}
        await agent.tools.run("propose_change", change)
    archive = await server.library.archives.get(archive_id)
    folder = await server.library.folders.get(folder_id)
    await archive.attach_to(agent_id)
    passages = await archive.insert_many([f"walrus {number}" for number in range(MANY)])
    for number in range(MANY):
        await folder.upload(f"a line {number}\n".encode() * 400, name=f"{number}.txt")
        await agent.facts.add(f"Ada visited Town{number}.", subject="Ada", object=f"Town{number}")
        await agent.forget(f"nothing {number}")
    writes = [
        MemoryWrite(
            kind="passage",
            owner_id=archive_id,
            ref=passage.id,
            sources=(
                WriteSource(Source("web", "https://one.example")),
                WriteSource(Source("web", f"https://{number}.example")),
            ),
            agent_id=agent_id,
            created_at=passage.created_at,
        )
        for number, passage in enumerate(passages)
    ]
    await server.library.app.store.write(lambda tx: tx.sources.add(writes))
    await folder.wait()
