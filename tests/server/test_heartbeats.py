"""Agents with a heartbeat loop, as clients see them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client.types.agents import LettaStreamingResponse
from pydantic import TypeAdapter

from perdure.core.messages import ToolCall
from perdure.core.models import ModelReply
from perdure.testing import calls
from tests.server.routed import Routed, new_agent, routed
from tests.support.servers import chunks_of, in_process
from tests.support.stories import PieceModel, read_stream, story_of

STREAMED: TypeAdapter[Any] = TypeAdapter(LettaStreamingResponse)
MEMGPT = ["conversation_search", "core_memory_append", "core_memory_replace", "memory", "memory_apply_patch"]
SCRIPT = (
    calls("core_memory_append", thinking="A name.", label="human", content="Ada", request_heartbeat=True),
    calls("send_message", thinking="I greet.", message="Hello, Ada.", request_heartbeat=False),
)
STORY = [
    ("reasoning_message", "A name."),
    ("tool_call_message", {"label": "human", "content": "Ada", "request_heartbeat": True}),
    ("tool_return_message", "Ada"),
    ("reasoning_message", "I greet."),
    ("assistant_message", "Hello, Ada."),
]


def told(message: Mapping[str, Any]) -> tuple[str, Any]:
    """(Type, content) of a wire message."""
    match message["message_type"]:
        case "reasoning_message":
            return "reasoning_message", message["reasoning"]
        case "tool_call_message":
            return "tool_call_message", json.loads(message["tool_call"]["arguments"])
        case "tool_return_message":
            return "tool_return_message", message["tool_return"]
        case kind:
            return kind, message.get("content")


async def test_the_older_types_have_their_tools_and_speak_by_send_message() -> None:
    """Thoughts are reasoning, `send_message` is an assistant message and its result is hidden; listed alike."""
    async with routed(*SCRIPT) as server:
        blocks = [{"label": "human", "value": ""}]
        agent = await new_agent(server, agent_type="memgpt_agent", include_base_tools=True, memory_blocks=blocks)
        path = f"/v1/agents/{agent['id']}"
        assert agent["agent_type"] == "memgpt_agent"
        assert sorted(tool["name"] for tool in agent["tools"]) == [*MEMGPT, "send_message"]
        assert "request_heartbeat" in agent["system"]
        kept = await server.patch(path, {"system": agent["system"], "description": "x"})
        assert (kept["agent_type"], kept["system"]) == ("memgpt_agent", agent["system"])

        sent = await server.post(f"{path}/messages", {"input": "I am Ada."})

        assert (sent["stop_reason"]["stop_reason"], [told(one) for one in sent["messages"]]) == ("end_turn", STORY)
        listed = await server.get(f"{path}/messages", order="asc")
        assert [told(one) for one in listed if one["message_type"] not in ("system_message", "user_message")] == STORY
        plain = await server.get(f"{path}/messages", order="desc", use_assistant_message=False, limit=2)
        assert [told(one)[0] for one in plain][:2] == ["tool_return_message", "tool_call_message"]
        found = await server.post("/v1/messages/search", {"query": "hello", "agent_id": agent["id"]})
        assert "Hello, Ada." in json.dumps(found)


async def test_the_second_type_has_the_newer_memory_tools() -> None:
    async with routed() as server:
        agent = await new_agent(server, agent_type="memgpt_v2_agent", include_base_tools=True)

        assert sorted(tool["name"] for tool in agent["tools"]) == [
            *("conversation_search", "memory_insert", "memory_replace", "send_message")
        ]


async def test_a_tool_of_the_caller_gets_its_own_arguments() -> None:
    """Without thoughts and heartbeat: the program that runs it does not know them."""
    script = calls("paint", thinking="Red.", colour="red", request_heartbeat=True), SCRIPT[1]
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    paint = {"name": "paint", "description": "Paint.", "parameters": schema}
    async with routed(*script) as server:
        agent = await new_agent(server, agent_type="memgpt_v2_agent", include_base_tools=True)
        path = f"/v1/agents/{agent['id']}/messages"
        sent = await server.post(path, {"input": "Paint.", "client_tools": [paint]})
        (request,) = [one for one in sent["messages"] if one["message_type"] == "approval_request_message"]
        call = request["tool_call"]
        assert json.loads(call["arguments"]) == {"colour": "red"}
        back = {"type": "tool", "tool_call_id": call["tool_call_id"], "tool_return": "painted", "status": "success"}

        more = await server.post(
            path, {"messages": [{"type": "approval", "approvals": [back]}], "client_tools": [paint]}
        )

        assert [told(one) for one in more["messages"]][-2:] == STORY[-2:]


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("background", [False, True])
async def test_streams_tell_the_same_story(tmp_path: Path, tokens: bool, background: bool) -> None:
    """Step by step and token by token, live and resumed at every number."""
    async with in_process(tmp_path, *SCRIPT) as (client, perdure):
        agent = await perdure.create_agent(agent_type="memgpt_agent", human="")
        body = {"input": "I am Ada.", "streaming": True, "stream_tokens": tokens, "background": background}
        chunks = await stream(client, f"/v1/agents/{agent.id}/messages", body | {"include_pings": False})

        whole = [one for one in chunks if "arguments" in (one.get("tool_call") or {"arguments": ""})]
        assert len(chunks) - len(whole) == tokens  # the piece with the call's name
        assert [told(one) for one in whole] == STORY
        if background:
            run_id = chunks[0]["run_id"]
            for place, chunk in enumerate(chunks):
                start = {"starting_after": chunk["seq_id"], "include_pings": False}
                again = await stream(client, f"/v1/runs/{run_id}/stream", start)
                assert again == chunks[place + 1 :]


@pytest.mark.parametrize("background", [False, True])
async def test_a_token_stream_shows_what_the_agent_says_while_it_writes(background: bool) -> None:
    """Thoughts and message come piece by piece; as a call they come when they are whole."""
    model = PieceModel(SCRIPT[1], SCRIPT[1])
    async with routed(model=model) as server:
        agent = await new_agent(server, agent_type="memgpt_agent", include_base_tools=True)
        path = f"/v1/agents/{agent['id']}/messages"
        body = {"input": "Hi.", "streaming": True, "stream_tokens": True, "background": background}

        said = [one for _, one in await read_stream(server, path, body | {"include_pings": False})][:-2]
        called = [one for _, one in await read_stream(server, path, body | {"use_assistant_message": False})][:-2]

        pieces = {kind: [told(one)[1] for one in said if one["message_type"] == kind] for kind, _ in STORY[-2:]}
        assert {kind: "".join(texts) for kind, texts in pieces.items()} == dict(STORY[-2:])
        assert [one["message_type"] for one in said] == [kind for kind, texts in pieces.items() for _ in texts]
        assert background or all(len(texts) > 2 for texts in pieces.values())
        whole = [one for one in called if one["message_type"] == "tool_call_message"]
        assert [one["tool_call"].get("name") for one in whole] == ["send_message", None]
        assert json.loads(whole[1]["tool_call"]["arguments"]) == {"message": "Hello, Ada.", "request_heartbeat": False}


async def shown_and_listed(server: Routed, path: str, form: str) -> tuple[Sequence[Any], Sequence[Any]]:
    """(what one step shows in this form: a reply, or a stream of a kind; what the list holds behind the greeting)."""
    body: dict[str, Any] = {"input": "Hi.", "max_steps": 1}
    if form == "reply":
        shown = (await server.post(path, body))["messages"]
    else:
        body |= {"streaming": True, "stream_tokens": form != "steps", "background": form == "background"}
        shown = [one for _, one in await read_stream(server, path, body | {"include_pings": False})][:-2]
    return shown, (await server.get(path, order="asc"))[2:]


NOT_SENT: dict[str, tuple[dict[str, Any], list[Any], str]] = {
    "forbidden by a rule": ({"message": "Too early."}, [{"type": "run_first", "tool_name": "memory_insert"}], "call"),
    "unusable": ({"message": {}}, [], "call"),
    "waiting": (
        {"message": "May I?"},
        [{"type": "requires_approval", "tool_name": "send_message"}],
        "approval_request",
    ),
}


@pytest.mark.parametrize("form", ["reply", "steps", "tokens", "background"])
@pytest.mark.parametrize("case", NOT_SENT)
async def test_a_message_that_was_not_sent_is_no_message_of_the_agent(case: str, form: str) -> None:
    """It is shown as a call, in the reply, in streams and in the list; a person can approve one that waits."""
    arguments, rules, kind = NOT_SENT[case]
    model = PieceModel(calls("send_message", **arguments), calls("memory_insert", label="human", new_string="x"))
    async with routed(model=model) as server:
        agent = await new_agent(
            server,
            agent_type="memgpt_v2_agent",
            tool_rules=rules,
            tools=["send_message", "memory_insert"],
            memory_blocks=[{"label": "human", "value": ""}],
        )
        path = f"/v1/agents/{agent['id']}/messages"
        shown, listed = await shown_and_listed(server, path, form)

        for messages in (shown, listed):
            types = list(dict.fromkeys(one["message_type"] for one in messages))
            assert types == (["tool_call_message", "tool_return_message"] if kind == "call" else [f"{kind}_message"])
        pieces = [(one.get("tool_call") or {}).get("arguments") or "" for one in shown]
        assert json.loads("".join(pieces)) == arguments


@pytest.mark.parametrize("form", ["reply", "steps", "tokens", "background"])
@pytest.mark.parametrize(("arguments", "text"), [('{"message": "Hel', "Hel"), ('{"message": "Hello."', "Hello.")])
async def test_a_message_that_breaks_off_is_shown_as_far_as_it_goes(arguments: str, text: str, form: str) -> None:
    """In the reply, in streams and in the list, before the call that could not be run."""
    broken = ModelReply(parts=(ToolCall("c1", "send_message", arguments), ToolCall("c2", "send_message", "{}")))
    async with routed(model=PieceModel(broken)) as server:
        agent = await new_agent(server, agent_type="memgpt_v2_agent")
        path = f"/v1/agents/{agent['id']}/messages"
        shown, listed = await shown_and_listed(server, path, form)

        assert story_of(shown) == story_of(listed)
        said, called = story_of(shown)[:2]
        assert (said[0], said[-1]) == ("assistant_message", text)
        assert (called[0], called[-1]["c1"]) == ("tool_call_message", ("send_message", arguments))


async def stream(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a stream, without its end."""
    answered = await client.post(path, json=body)
    assert answered.status_code == 200, answered.text
    chunks: list[Any] = [chunk for _, chunk in chunks_of(answered.text)[:-1]]
    for chunk in chunks:
        STREAMED.validate_python(chunk)
    return [one for one in chunks if one["message_type"] not in ("stop_reason", "usage_statistics")]
