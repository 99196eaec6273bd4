"""Runs sent again and exported over HTTP."""

from __future__ import annotations

from perdure.testing import says
from tests.server.routed import new_agent, routed


async def test_a_run_is_replayed_and_exported() -> None:
    """Old and new answers stand side by side, and nothing is stored."""
    async with routed(says("Old answer."), says("New answer.")) as server:
        agent = await new_agent(server)
        sent = {"messages": [{"role": "user", "content": "Hello"}]}
        reply = await server.post(f"/v1/agents/{agent['id']}/messages", sent)
        where = f"/v1/runs/{reply['messages'][-1]['run_id']}"
        replay = await server.post(f"{where}/replay", {"system": "Be short."})
        export = await server.get(f"{where}/export")

        assert [(step["old"]["text"], step["new"]["text"]) for step in replay["steps"]] == [
            ("Old answer.", "New answer.")
        ]
        assert [message["role"] for message in export["messages"]] == ["user", "assistant"]
        assert (await server.refused("POST", f"{where}/replay", {"model": "test/unknown"}))[0] == 404
