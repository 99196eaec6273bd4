"""Batches over HTTP: the results of the calls of one answer are one message, wherever messages are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client.types import ToolReturnMessage

from perdure import tool
from perdure.core.messages import ToolCall
from perdure.domain.conversations.units import batch_of
from perdure.testing import calls, says
from tests.support.servers import chunks_of, in_process

RETURN = "tool_return_message"
STREAMS: list[dict[str, Any]] = [
    {"streaming": True},
    {"streaming": True, "stream_tokens": True},
    {"streaming": True, "background": True},
    {"streaming": True, "stream_tokens": True, "background": True},
]
YES = {"type": "approval", "tool_call_id": "a", "approve": True}
ANSWER = {"messages": [{"type": "approval", "approvals": [YES]}]}


@tool
def pay(n: int = 0) -> str:
    """Pay."""
    return f"paid {n}"


@tool
def look(n: int = 0) -> str:
    """Look."""
    if n < 0:
        raise ValueError("too low")
    return f"seen {n}"


def look_at(call_id: str, n: int) -> ToolCall:
    return ToolCall(call_id, "look", f'{{"n": {n}}}')


def returns_of(messages: Any) -> list[dict[str, Any]]:
    """The results that are shown, each of which the official client can read."""
    found = [one for one in messages if isinstance(one, dict) and one.get("message_type") == RETURN]
    for one in found:
        ToolReturnMessage.model_validate(one)
    return found


async def listed(client: httpx.AsyncClient, path: str, **query: Any) -> list[dict[str, Any]]:
    answered = await client.get(path, params=query or None)
    assert answered.status_code == 200, answered.text
    return list(answered.json())


async def test_one_message_after_an_approval(tmp_path: Path) -> None:
    """In the reply and in every list; its older fields are those of the first result."""
    batch = calls("pay", look_at("b", -1), look_at("c", 2), call_id="a", n=1)
    async with in_process(tmp_path, batch, says("ok"), tools=[pay, look]) as (client, perdure):
        agent = await perdure.create_agent(tools=("pay", "look"))
        await agent.require_approval("pay")
        path = f"/v1/agents/{agent.id}/messages"
        asked = (await client.post(path, json={"input": "go"})).json()["messages"]
        assert returns_of(asked) == []

        reply = (await client.post(path, json=ANSWER)).json()["messages"]
        assert [one["message_type"] for one in reply] == [RETURN, "assistant_message"]
        shown = reply[0]
        assert [(one["tool_call_id"], one["status"]) for one in shown["tool_returns"]] == [
            *(("a", "success"), ("b", "error"), ("c", "success"))
        ]
        assert (shown["tool_call_id"], shown["tool_return"], shown["name"]) == ("a", "paid 1", "pay")
        for where in (
            path,
            "/v1/messages/",
            f"/v1/conversations/default/messages?agent_id={agent.id}",
            f"/v1/runs/{shown['run_id']}/messages",
        ):
            assert returns_of(await listed(client, where)) == [shown], where
        rows = [row for row in await agent.messages(limit=100) if batch_of(row) is not None]
        assert len(rows) == 3
        for row in rows:
            assert await listed(client, f"/v1/messages/{row.id}") == [shown]


@pytest.mark.slow
@pytest.mark.parametrize("mode", STREAMS, ids=str)
@pytest.mark.parametrize("approval", [True, False])
async def test_streams_show_what_lists_show(tmp_path: Path, mode: dict[str, Any], approval: bool) -> None:
    """A batch comes once, whole, also to a client that resumes at any number."""
    batch = calls("pay", look_at("b", 1), look_at("c", 2), call_id="a", n=1)
    async with in_process(tmp_path, batch, says("ok"), tools=[pay, look]) as (client, perdure):
        agent = await perdure.create_agent(tools=("pay", "look"))
        path = f"/v1/agents/{agent.id}/messages"
        if approval:
            await agent.require_approval("pay")
            await client.post(path, json={"input": "go"})
        body = ANSWER if approval else {"input": "go"}
        first = [chunk for _, chunk in chunks_of((await client.post(path, json=body | mode)).text)]
        [sent] = returns_of(first)
        [kept] = returns_of(await listed(client, path))
        assert sent | {"seq_id": None} == kept
        assert [one["tool_return"] for one in kept["tool_returns"]] == ["paid 1", "seen 1", "seen 2"]
        assert first.index(sent) < next(
            index for index, one in enumerate(first) if isinstance(one, dict) and one.get("content")
        )
        if "background" not in mode:
            return
        numbers = [one["seq_id"] for one in first if isinstance(one, dict) and one.get("seq_id")]
        assert numbers == sorted(set(numbers))
        for after in range(max(numbers) + 1):
            again = await client.post(f"/v1/runs/{sent['run_id']}/stream", json={"starting_after": after})
            expected = [sent] if sent["seq_id"] > after else []
            assert returns_of(chunk for _, chunk in chunks_of(again.text)) == expected, after


async def test_pages_neither_split_nor_repeat_a_batch(tmp_path: Path) -> None:
    """Of any size, in either order, with more rows than are read at once; the step lists the same."""
    batch = calls("look", *(look_at(f"c{n}", n) for n in range(1, 12)), call_id="c0", n=0)
    last = calls("look", look_at("e", 1), call_id="d", n=0)
    async with in_process(tmp_path, batch, last, says("ok"), tools=[look]) as (client, perdure):
        agent = await perdure.create_agent(tools=("look",))
        path = f"/v1/agents/{agent.id}/messages"
        await client.post(path, json={"input": "go"})
        whole = await listed(client, path, order="asc")
        assert [len(one["tool_returns"]) for one in returns_of(whole)] == [12, 2]
        for order, expected in (("asc", whole), ("desc", whole[::-1])):
            for limit in (1, 2, 3):
                found: list[dict[str, Any]] = []
                cursor: dict[str, str] = {}
                while page := await listed(client, path, order=order, limit=limit, **cursor):
                    found += page
                    cursor = {"after": page[-1]["id"]}
                assert found == expected, (order, limit)
        first, second = returns_of(whole)
        assert returns_of(await listed(client, path, after=first["id"])) == [second]
        assert returns_of(await listed(client, path, before=second["id"])) == [first]
        assert returns_of(await listed(client, f"/v1/steps/{first['step_id']}/messages")) == [first]


async def test_sent_messages_are_left_out_of_a_batch(tmp_path: Path) -> None:
    """A result that only says that a message was sent is shown only where calls of `send_message` are."""
    speech = ToolCall("s", "send_message", '{"message": "hi"}')
    script = calls("look", speech, call_id="a", n=1), says("ok")
    async with in_process(tmp_path, *script, tools=[look]) as (client, perdure):
        agent = await perdure.create_agent(tools=("look", "send_message"))
        path = f"/v1/agents/{agent.id}/messages"
        await client.post(path, json={"input": "go"})
        for speaks, expected in ((True, ["a"]), (False, ["a", "s"])):
            [shown] = returns_of(await listed(client, path, use_assistant_message=speaks))
            assert [one["tool_call_id"] for one in shown["tool_returns"]] == expected
        assert returns_of(await listed(client, path, include_return_message_types="assistant_message")) == []
