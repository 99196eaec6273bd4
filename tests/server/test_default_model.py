"""Agents that clients make without a model follow the server's default; one that they name is pinned."""

from __future__ import annotations

from dataclasses import replace

from tests.server.routed import GPT, MODEL, Routed, routed


def set_default(server: Routed, handle: str) -> None:
    """Have the server find another default."""
    models = server.library.app.models
    models.choice = replace(models.choice, handle=handle)


async def test_an_agent_without_a_model_has_the_default() -> None:
    """The one that the list of models begins with; it is shown as soon as it changes, in lists too."""
    async with routed() as server:
        made = await server.letta.agents.create(name="ann")
        before = (await server.letta.agents.retrieve(made.id)).model
        set_default(server, GPT)
        after = await server.letta.agents.retrieve(made.id)
        listed = [agent.model async for agent in server.letta.agents.list()]

        assert made.model == before == MODEL
        assert after.model == GPT == (await server.get("/v1/models/"))[0]["handle"]
        assert after.llm_config.handle == GPT and listed == [GPT]


async def test_a_model_that_a_client_names_is_pinned() -> None:
    """At the start or later. `letta/...`, Letta's own choice of a model, takes the pin away."""
    async with routed() as server:
        named = await server.letta.agents.create(name="named", model=MODEL)
        later = await server.letta.agents.create(name="later")
        await server.letta.agents.update(later.id, model=MODEL)
        set_default(server, GPT)
        pinned = [(await server.letta.agents.retrieve(one.id)).model for one in (named, later)]
        freed = await server.letta.agents.update(later.id, model="letta/auto")

        assert (pinned, freed.model) == ([MODEL, MODEL], GPT)


async def test_a_configuration_that_is_sent_back_pins_nothing() -> None:
    """Older clients send all of `llm_config` with every change."""
    async with routed() as server:
        made = await server.post("/v1/agents/", {"name": "ann"})
        await server.patch(f"/v1/agents/{made['id']}", {"llm_config": made["llm_config"], "description": "new"})
        set_default(server, GPT)

        assert (await server.get(f"/v1/agents/{made['id']}"))["model"] == GPT


async def test_the_next_run_has_the_new_default() -> None:
    """With nothing else to do for the client."""
    async with routed() as server:
        made = await server.letta.agents.create(name="ann")
        set_default(server, GPT)
        answer = await server.letta.agents.messages.create(made.id, input="hello")
        steps = [step async for step in server.letta.steps.list(agent_id=made.id)]

        assert answer.messages[-1].message_type == "assistant_message"
        assert [step.model for step in steps] == ["gpt-4o-mini"]
