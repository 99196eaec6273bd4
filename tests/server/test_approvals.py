"""Answers to calls that wait, over HTTP: their shapes, the same again, and what is none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure import tool
from perdure.core.messages import ToolCall
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.testing import calls, says
from tests.support.servers import in_process

done: list[int] = []


@tool
def pay(n: int = 0) -> str:
    """Pay."""
    done.append(n)
    return f"paid {n}"


def yes(**decision: Any) -> dict[str, Any]:
    return {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": "a", "approve": True, **decision}]}


async def stopped(perdure: AsyncPerdure, client: httpx.AsyncClient, **body: Any) -> tuple[AsyncAgent, dict[str, Any]]:
    """An agent whose call `a` of `pay` waits, and the request for approval."""
    done.clear()
    agent = await perdure.create_agent("payer", tools=("pay",))
    await agent.require_approval("pay")
    reply = (await client.post(f"/v1/agents/{agent.id}/messages", json={"input": "go"} | body)).json()
    return agent, reply["messages"][-1]


async def test_arguments_that_a_person_changed_are_shown(tmp_path: Path) -> None:
    """As what was decided: in the history; what the model asked for stays in the request."""
    async with in_process(tmp_path, calls("pay", call_id="a", n=900), says("ok"), tools=[pay]) as (client, perdure):
        agent, _ = await stopped(perdure, client)
        path = f"/v1/agents/{agent.id}/messages"
        wrong = await client.post(path, json={"messages": [yes(arguments={"n": "many"})]})
        assert (wrong.status_code, "changed arguments of call a" in wrong.json()["detail"]) == (400, True)
        assert (await client.post(path, json={"messages": [yes(arguments={"n": 9})]})).status_code == 200

        history = {one["message_type"]: one for one in (await client.get(path)).json()}
        assert history["approval_request_message"]["tool_call"]["arguments"] == '{"n": 900}'
        assert history["approval_response_message"]["approvals"] == [
            {"type": "approval", "tool_call_id": "a", "approve": True, "reason": None, "arguments": '{"n": 9}'}
        ]
        assert done == [9]


LEGACY: dict[str, Any] = {
    "call": {"approve": True, "approval_request_id": "a"},
    "request": {"type": "approval", "approve": True, "approval_request_id": "MESSAGE"},
    "nothing": {"approve": True},
    "item": yes(),
}


@pytest.mark.slow
@pytest.mark.parametrize("again", LEGACY)
@pytest.mark.parametrize("first", LEGACY)
async def test_an_answer_in_any_form_can_be_sent_again(tmp_path: Path, first: str, again: str) -> None:
    """It is the earlier reply; another decision is refused, and says what was decided."""
    async with in_process(tmp_path, calls("pay", call_id="a", n=1), says("ok"), tools=[pay]) as (client, perdure):
        agent, request = await stopped(perdure, client)

        def body(form: str, **change: Any) -> dict[str, Any]:
            answer = {name: request["id"] if value == "MESSAGE" else value for name, value in LEGACY[form].items()}
            return {"messages": [answer | change]}

        path = f"/v1/agents/{agent.id}/messages"
        one = await client.post(path, json=body(first))
        two = await client.post(path, json=body(again))
        assert (one.status_code, two.status_code) == (200, 200), two.text
        assert one.json()["messages"] == two.json()["messages"]
        no = yes(approve=False) if again == "item" else body(again, approve=False)["messages"][0]
        late = await client.post(path, json={"messages": [no]})
        assert late.status_code == 400
        assert "No tool call is currently awaiting approval" in late.json()["detail"]
        assert "call a was approved already" in late.json()["detail"]
        assert done == [1]


async def test_an_answer_keeps_the_otid_that_its_client_gave_it(tmp_path: Path) -> None:
    """As any other message: by it a client knows its own message again. Without one it has none."""
    script = [part for call_id in "ab" for part in (calls("pay", call_id=call_id), says("ok"))]
    async with in_process(tmp_path, *script, tools=[pay]) as (client, perdure):
        agent, _ = await stopped(perdure, client)
        path = f"/v1/agents/{agent.id}/messages"
        await client.post(path, json={"messages": [yes() | {"otid": "o-7"}]})
        await client.post(path, json={"input": "again"})
        await client.post(path, json={"messages": [yes(tool_call_id="b")]})

        query = {"include_return_message_types": "approval_response_message"}
        assert [one["otid"] for one in (await client.get(path, params=query)).json()] == ["o-7", None]


async def test_an_answer_of_two_kinds_is_none(tmp_path: Path) -> None:
    """The call waits on."""
    returned = {"tool_call_id": "a", "tool_return": "paid"}
    both = yes(tool_return="x"), yes(type="tool", tool_return="x"), yes(type="tool")
    async with in_process(tmp_path, calls("pay", call_id="a"), says("ok"), tools=[pay]) as (client, perdure):
        agent, _ = await stopped(perdure, client)
        for answer, status, part in (
            *((one, 422, "body.messages.0: the answer to call 'a'") for one in both),
            ({"approvals": [{"type": "approval", **returned}]}, 422, "give approve or tool_return"),
        ):
            refused = await client.post(f"/v1/agents/{agent.id}/messages", json={"messages": [answer]})
            assert (refused.status_code, part in refused.json()["detail"]) == (status, True), refused.text
        assert (len(await agent.pending()), done) == (1, [])


@pytest.mark.parametrize("as_return", [False, True])
async def test_a_client_may_run_a_tool_of_the_server_that_waits(tmp_path: Path, as_return: bool) -> None:
    """Its result is the call's, and the history holds the answer, as after an approval."""
    returned = {"type": "tool", "tool_call_id": "a", "tool_return": "paid", "status": "success", "stdout": ["x"]}
    answer = {"type": "tool_return", "tool_returns": [returned]} if as_return else {"approvals": [returned]}
    async with in_process(tmp_path, calls("pay", call_id="a"), says("ok"), tools=[pay]) as (client, perdure):
        agent, _ = await stopped(perdure, client)
        path = f"/v1/agents/{agent.id}/messages"
        reply = (await client.post(path, json={"messages": [answer]})).json()
        history = (await client.get(path, params={"order": "asc"})).json()

        assert [one["message_type"] for one in reply["messages"]] == ["tool_return_message", "assistant_message"]
        assert (reply["messages"][0]["tool_return"], done) == ("paid", [])
        assert [one["message_type"] for one in history[-4:]] == [
            *("approval_request_message", "approval_response_message", "tool_return_message", "assistant_message")
        ]
        request, response = history[-4:-2]
        assert response["approvals"] == [{**returned, "stderr": []}]
        assert (response["approve"], response["approval_request_id"]) == (None, "a")
        assert request["otid"] == request["id"]


async def test_what_waits_is_told_in_the_words_of_letta_s_server(tmp_path: Path) -> None:
    """The whole text, because clients look for it."""
    async with in_process(tmp_path, calls("pay", call_id="a"), tools=[pay]) as (client, perdure):
        agent, _ = await stopped(perdure, client)
        refused = await client.post(f"/v1/agents/{agent.id}/messages", json={"input": "hello?"})

        assert refused.json()["detail"]["message"] == (
            "CONFLICT: Cannot send a new message: The agent is waiting for approval on a tool call. Please approve or"
            " deny the pending request before continuing."
        )
        assert refused.headers["x-should-retry"] == "false"


async def test_an_answer_again_after_a_cancelled_run_is_a_new_turn(tmp_path: Path) -> None:
    """With a stored message that says so; the tool is not run again, and a retry of that request is the same turn."""

    async def wait() -> None:
        """Wait."""
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()
    script = calls("pay", call_id="a"), calls("wait"), says("back")
    async with in_process(tmp_path, *script, tools=[pay, wait]) as (client, perdure):
        agent, _ = await stopped(perdure, client)
        await agent.tools.attach("wait")
        path = f"/v1/agents/{agent.id}/messages"
        going = asyncio.create_task(client.post(path, json={"messages": [yes()]}))
        await started.wait()
        await client.post(f"{path}/cancel")
        assert (await going).json()["stop_reason"]["stop_reason"] == "cancelled"
        again = {"messages": [yes() | {"otid": "again"}]}
        reply, retry = [(await client.post(path, json=again)).json() for _ in range(2)]
        history = (await client.get(path)).json()

        assert [one["content"] for one in reply["messages"]] == ["back"]
        assert retry["messages"] == reply["messages"]
        assert len(done) == 1
        assert history[-2]["content"] == (
            "<system-alert>Automated keep-alive ping. Ignore this message and continue from where you stopped."
            "</system-alert>"
        )


async def test_the_limit_of_a_message_holds_over_its_answers(tmp_path: Path) -> None:
    """One that a message brought; without one each request counts anew, as a client with its own tools needs it."""
    script = [calls("pay", call_id=call_id) for call_id in ("a", "b", "c", "d")]
    async with in_process(tmp_path, *script, tools=[pay]) as (client, perdure):
        agent, _ = await stopped(perdure, client, max_steps=1)
        path = f"/v1/agents/{agent.id}/messages"
        ended = (await client.post(path, json={"messages": [yes()]})).json()
        assert (ended["stop_reason"]["stop_reason"], len(done)) == ("max_steps", 1)
        await client.post(path, json={"input": "go"})
        await client.post(path, json={"messages": [yes(tool_call_id="b")]})

        runs = (await perdure.app.store.read(lambda tx: tx.runs.list(agent.id)))[:2]
        assert [run.max_steps for run in runs] == [50, 50]


async def test_the_message_that_waits_is_the_last_in_context(tmp_path: Path) -> None:
    """Where clients look for it: no call of the same answer is executed before it is answered."""
    both = calls("pay", ToolCall("b", "conversation_search", '{"query": "tea"}'), call_id="a")
    async with in_process(tmp_path, both, says("ok"), tools=[pay]) as (client, perdure):
        agent = await perdure.create_agent(tools=("pay", "conversation_search"))
        await agent.require_approval("pay")
        reply = (await client.post(f"/v1/agents/{agent.id}/messages", json={"input": "go"})).json()
        types = ["tool_call_message", "approval_request_message"]
        assert [message["message_type"] for message in reply["messages"]] == types
        state = (await client.get(f"/v1/agents/{agent.id}")).json()
        same = (await client.get("/v1/conversations/default", params={"agent_id": agent.id})).json()

        assert len(state["message_ids"]) == 3
        assert state["message_ids"][-1] == reply["messages"][1]["id"]
        assert same["in_context_message_ids"] == state["message_ids"]
        await agent.approve()
        assert (await client.get(f"/v1/agents/{agent.id}")).json()["message_ids"][2] == reply["messages"][1]["id"]


async def test_a_message_with_answers_that_are_null_is_a_message(tmp_path: Path) -> None:
    """One with nothing but such fields is none of either."""
    nulls = {"approvals": None, "tool_returns": None, "approve": None}
    async with in_process(tmp_path, says("hi")) as (client, perdure):
        agent = await perdure.create_agent("talker", tools=())
        path = f"/v1/agents/{agent.id}/messages"
        said = await client.post(path, json={"messages": [{"role": "user", "content": "x", **nulls}]})
        none = await client.post(path, json={"messages": [nulls]})
        answer = await client.post(path, json={"messages": [{"type": "approval", **nulls}]})

        assert said.status_code == 200, said.text
        assert [one.text for one in await agent.messages() if one.role == "user"] == ["x"]
        assert (none.status_code, "body.messages.0.role" in none.text) == (422, True)
        assert (answer.status_code, "give approvals, tool_returns, or approve" in answer.text) == (422, True)
