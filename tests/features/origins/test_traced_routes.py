"""The route that tells where memories and answers come from."""

from __future__ import annotations

from perdure.testing import calls, says
from tests.server.routed import new_agent, routed


async def test_a_memory_and_an_answer_are_traced() -> None:
    """By ids and by words; what no agent is named for, is unknown or is another's is refused."""
    async with routed(calls("memory_insert", label="human", new_string="Likes tea."), says("Noted.")) as server:
        human = [{"label": "human", "value": ""}]
        agent = await new_agent(server, memory_blocks=human, tools=["memory_insert"])
        other = await new_agent(server, "ben")
        sent = {"messages": [{"role": "user", "content": "I like tea"}]}
        reply = await server.post(f"/v1/agents/{agent['id']}/messages", sent)
        line = await server.get("/v1/why", of="likes tea", agent_id=agent["id"])
        answer = await server.get("/v1/why", of=reply["messages"][-1]["id"][:17])

        assert (line["type"], line["kind"], line["text"]) == ("memory", "line", "Likes tea.")
        assert [message["text"] for message in line["writes"][0]["messages"]] == ["I like tea"]
        assert (answer["type"], answer["text"], answer["run_id"]) == ("answer", "Noted.", line["writes"][0]["run_id"])
        assert (await server.refused("GET", "/v1/why", of="tea"))[0] == 422
        assert (await server.refused("GET", "/v1/why", of=answer["step_id"], agent_id=other["id"]))[0] == 404
