"""A helper that asks for approval asks the user of the agent that called it, who goes on after the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from perdure import AsyncAgent, AsyncPerdure, tool
from perdure.core.tools.answers import PendingCall
from perdure.testing import ScriptedModel, calls, says
from tests.features.helpers.helper_office import define, lead
from tests.support.office import ended_runs, results
from tests.support.servers import in_process
from tests.ui.browser import dashboard


@tool
def send_mail(to: str) -> str:
    """Send a mail.

    Args:
        to: who gets it.
    """
    return f"Sent to {to}."


MAIL = calls("send_mail", to="Ada")


async def waiting_calls(agent: AsyncAgent) -> Sequence[PendingCall]:
    """The calls that wait for the agent's user, as soon as there are any."""
    async with asyncio.timeout(20):
        while True:
            if found := await agent.pending():
                return found
            await asyncio.sleep(0.02)


async def asked(
    tmp_path: Path, name: str, decide: Callable[[AsyncPerdure, AsyncAgent, PendingCall], object]
) -> tuple[str, str, Sequence[str | None], ScriptedModel]:
    """The agent's reply, the result of its call, the models of all runs, and the model of the helper."""
    define(tmp_path, "clerk", model="test/small")
    helper = ScriptedModel(MAIL, says("The mail is out."))
    own = calls("run_helper", name=name, prompt="Write Ada")
    models = {"lead": ScriptedModel(own, *((MAIL, says("The mail is out.")) if name == "fork" else ()), says("Done."))}
    async with lead(tmp_path, {**models, "small": helper}, functions=[send_mail], tools=("send_mail",)) as (
        perdure,
        agent,
    ):
        await agent.require_approval("send_mail")
        task = asyncio.create_task(agent.send("Go"))
        (call,) = await waiting_calls(agent)
        await decide(perdure, agent, call)  # type: ignore[misc]
        reply = await task
        runs = await ended_runs(perdure)
        assert await agent.pending() == ()

    (result,) = [one for one in results(reply.messages) if one.name == "run_helper"]
    return reply.text, result.text, [run.options.model for run in runs], helper


@pytest.mark.parametrize("name", ["clerk", "fork"])
async def test_the_user_of_the_agent_approves(tmp_path: Path, name: str) -> None:
    """It stands among the agent's own approvals; the helper goes on on its model, and so does the call."""

    async def approve(perdure: AsyncPerdure, agent: AsyncAgent, call: PendingCall) -> None:
        assert (call.helper, call.name) == (name, "send_mail")
        assert [(owner, one.call_id) for owner, one in await perdure.approvals.list_all()] == [("Lead", call.call_id)]
        state = await perdure.agent_of(agent.id).state()
        assert state.pending is not None
        assert state.pending.run.id == call.run_id
        await agent.approve()

    reply, result, models, helper = await asked(tmp_path, name, approve)

    assert reply == "Done."
    assert result.startswith(f"The mail is out.\n\n[Helper {name} on test/")
    assert models == [None, "test/small", "test/small"] if name == "clerk" else [None, None, None]
    if name == "clerk":
        assert helper.requests[1].messages[-1].text == "Sent to Ada."


async def test_the_user_of_the_agent_denies(tmp_path: Path) -> None:
    """The helper reads the reason, as for any call."""

    async def deny(perdure: AsyncPerdure, agent: AsyncAgent, call: PendingCall) -> None:
        await agent.deny(call.call_id, reason="not today")

    reply, _, _, helper = await asked(tmp_path, "clerk", deny)

    assert reply == "Done."
    assert "not today" in helper.requests[1].messages[-1].text


async def test_a_call_that_is_given_up_ends_the_helper(tmp_path: Path) -> None:
    """The agent is told so."""

    async def give_up(perdure: AsyncPerdure, agent: AsyncAgent, call: PendingCall) -> None:
        await perdure.runs.cancel(call.run_id)

    reply, result, _, _ = await asked(tmp_path, "clerk", give_up)

    assert reply == "Done."
    assert "the calls that it waited for were given up" in result


async def test_cancelling_the_agent_ends_a_helper_that_waits(tmp_path: Path) -> None:
    """Nothing waits any more."""
    define(tmp_path, "clerk", model="test/small")
    models = {"lead": ScriptedModel(calls("run_helper", name="clerk", prompt="Go")), "small": ScriptedModel(MAIL)}
    async with lead(tmp_path, models, functions=[send_mail], tools=("send_mail",)) as (perdure, agent):
        await agent.require_approval("send_mail")
        task = asyncio.create_task(agent.send("Go"))
        (call,) = await waiting_calls(agent)
        (run,) = [run for run in await agent.runs() if not run.ended]
        await perdure.runs.cancel(run.id)
        reply = await task
        async with asyncio.timeout(20):
            while True:  # it is cancelled beside the end of the agent's run
                if not (waiting := await perdure.approvals.list_all()):
                    break
                await asyncio.sleep(0.02)
        runs = await ended_runs(perdure)

    assert (reply.stop_reason, waiting) == ("cancelled", [])
    assert [run.stop_reason for run in runs] == ["cancelled", "cancelled"]
    assert call.helper == "clerk"


async def test_an_approval_over_http_goes_to_the_agent(tmp_path: Path) -> None:
    """The agent's `pending_approval` is the helper's; an approval in the words of Letta's clients answers it."""
    script = (calls("run_helper", name="general", prompt="Write Ada"), MAIL, says("It is out."), says("Done."))
    async with in_process(tmp_path, *script, tools=[send_mail]) as (client, perdure):
        agent = await perdure.create_agent("Lead", tools=["run_helper", "send_mail"])
        await agent.require_approval("send_mail")
        path = f"/v1/agents/{agent.id}"
        task = asyncio.create_task(client.post(f"{path}/messages", json={"input": "go"}))
        await waiting_calls(agent)
        pending = (await client.get(path)).json()["pending_approval"]
        approval = {"type": "approval", "approve": True, "approval_request_id": pending["id"]}
        answered = await client.post(f"{path}/messages", json={"messages": [approval]})
        reply = (await task).json()
        after = (await client.get(path)).json()["pending_approval"]

    assert pending["tool_call"]["name"] == "send_mail"
    assert answered.status_code == 200, answered.text
    assert answered.json()["messages"][-1]["content"] == "It is out."
    assert reply["messages"][-1]["content"] == "Done."
    assert after is None


async def test_an_approval_in_the_dashboard_names_the_helper() -> None:
    """The page says whose call it is, and its form answers it."""
    script = (calls("run_helper", name="general", prompt="Write Ada"), MAIL, says("It is out."), says("Done."))
    async with dashboard(*script, tools=[send_mail]) as (client, library):
        agent = await library.create_agent("Lead", tools=["run_helper", "send_mail"])
        await agent.require_approval("send_mail")
        task = asyncio.create_task(agent.send("go"))
        (call,) = await waiting_calls(agent)
        page = (await client.get("/approvals")).text
        chat = (await client.get(f"/agents/{agent.id}")).text
        form = {"agent_id": call.agent_id, "conversation_id": call.conversation_id, "call_id": call.call_id}
        await client.post("/approvals", data={**form, "choice": "approve"})
        reply = await task

    assert "in its helper general" in page
    assert call.call_id in chat
    assert reply.text == "Done."
