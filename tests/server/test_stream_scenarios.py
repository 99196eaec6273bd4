"""Thirteen scenarios in every mode of streaming: each chunk against the contract, and the same run read again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from letta_client.types.agents import EventMessage, LettaStreamingResponse, SummaryMessage
from pydantic import TypeAdapter

from perdure.core.messages import ToolCall
from perdure.testing import calls, fails, says, thinks
from tests.server.routed import Routed, new_agent, routed
from tests.support.stories import (
    Chunk,
    Held,
    Stage,
    boom,
    check_numbers,
    look,
    pay,
    read_stream,
    story_of,
    without_ping_ids,
)

STREAMED: TypeAdapter[Any] = TypeAdapter(LettaStreamingResponse)
COMPACTION_TYPES: dict[str, TypeAdapter[Any]] = {
    "event_message": TypeAdapter(EventMessage),
    "summary_message": TypeAdapter(SummaryMessage),
}
"""The types of the messages that the client leaves out of those of a stream."""

STAGE = Stage()

MODES: dict[str, dict[str, Any]] = {
    f"{form}{background}{pings}": {
        **({"stream_tokens": True} if form == "tokens" else {}),
        **({"background": True} if background else {}),
        **({"include_pings": False} if pings else {}),
    }
    for form in ("steps", "tokens")
    for background in ("", " background")
    for pings in ("", " no pings")
}
MODES["async"] = {}
"""Started by `messages/async`, read by `runs/{id}/stream`: token by token."""

SEEN = ("a", "success", "seen here")
BASH = {"name": "Bash", "description": "Run.", "parameters": {"type": "object", "properties": {}}}
ANSWER = {"type": "approval", "tool_call_id": "p"}
PAY = calls("pay", call_id="p", n=3)
STATS = ["trigger", "context_tokens_before", "context_tokens_after", "context_window"]
STATS += ["messages_count_before", "messages_count_after"]
LONG = "hi" + " word" * 1_200
PAID = ("assistant_message", "Done.")


def decide(**answer: Any) -> dict[str, Any]:
    """The body of a request that answers call `p`."""
    return {"messages": [{"type": "approval", "approvals": [ANSWER | answer]}]}


@dataclass(frozen=True)
class Scenario:
    """One streamed run.

    Args:
        script: what the model answers in the run; `before` in an earlier one, which is not streamed.
        says: (message type, content) of the messages that the stream must bring: a text; or of calls (name, id,
            arguments); or of returns (call id, status, text).
        steps: the model calls that count.
    """

    script: list[Any]
    says: list[tuple[str, Any]]
    stop: str = "end_turn"
    steps: int = 1
    before: Any = None
    body: dict[str, Any] | None = None
    imported: int = 0
    limit: int | None = None


SCENARIOS = {
    "plain reply": Scenario([says("Noted it now.")], [("assistant_message", "Noted it now.")]),
    "reasoning": Scenario(
        [thinks("well then", says("Yes it is."))],
        [("reasoning_message", "well then"), ("assistant_message", "Yes it is.")],
    ),
    "tool call": Scenario(
        [thinks("hm", calls("look", call_id="a")), says("It is.")],
        [
            ("reasoning_message", "hm"),
            ("tool_call_message", [("look", "a", "{}")]),
            ("tool_return_message", [SEEN]),
            ("assistant_message", "It is."),
        ],
        steps=2,
    ),
    "parallel calls": Scenario(
        [calls("look", ToolCall("b", "look", '{"place": "there"}'), call_id="a"), says("Both.")],
        [
            ("tool_call_message", [("look", "a", "{}"), ("look", "b", '{"place": "there"}')]),
            ("tool_return_message", [SEEN, ("b", "success", "seen there")]),
            ("assistant_message", "Both."),
        ],
        steps=2,
    ),
    "approval request": Scenario(
        [calls("pay", ToolCall("a", "look", "{}"), call_id="p", n=3)],
        [("tool_call_message", [("look", "a", "{}")]), ("approval_request_message", [("pay", "p", '{"n": 3}')])],
        stop="requires_approval",
    ),
    "denied": Scenario(
        [says("Then not.")],
        [
            ("tool_return_message", [("p", "error", "Error: request to call tool denied. User reason: no money")]),
            ("assistant_message", "Then not."),
        ],
        before=PAY,
        body=decide(approve=False, reason="no money"),
    ),
    "client tool": Scenario(
        [calls("Bash", call_id="p", command="ls")],
        [("approval_request_message", [("Bash", "p", '{"command": "ls"}')])],
        stop="requires_approval",
        body={"input": "hi", "client_tools": [BASH]},
    ),
    "cancelled": Scenario([Held(says("never said"))], [], stop="cancelled"),
    "model error": Scenario([fails("no key", kind="llm_authentication")], [], stop="llm_api_error", steps=0),
    "max steps": Scenario(
        [calls("look", call_id="a")],
        [("tool_call_message", [("look", "a", "{}")]), ("tool_return_message", [SEEN])],
        stop="max_steps",
        body={"input": "hi", "max_steps": 1},
    ),
    "compaction": Scenario(
        [says("Still here.")], [("assistant_message", "Still here.")], imported=7, limit=8_000, body={"input": LONG}
    ),
    "compaction with its messages": Scenario(
        [says("Still here.")],
        [("event_message", None), ("summary_message", None), ("assistant_message", "Still here.")],
        imported=7,
        limit=8_000,
        body={"input": LONG, "include_compaction_messages": True},
    ),
    "tool error": Scenario(
        [calls("boom", call_id="a", why="broken"), says("It failed.")],
        [
            ("tool_call_message", [("boom", "a", '{"why": "broken"}')]),
            ("tool_return_message", [("a", "error", "Error executing function boom: ValueError: broken")]),
            ("assistant_message", "It failed."),
        ],
        steps=2,
    ),
}


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[Routed]:
    """One server for all of these tests."""
    async with routed(model=STAGE, tools=[look, pay, boom]) as opened:
        yield opened


def expand(messages: list[tuple[str, Any]], *, tokens: bool) -> list[tuple[str, Any]]:
    """The chunks that bring these messages. A cancelled answer's pieces stay out of it."""
    chunks: list[tuple[str, Any]] = []
    for kind, content in messages:
        if kind in ("tool_call_message", "approval_request_message"):
            whole = [{"name": name, "arguments": text, "tool_call_id": one} for name, one, text in content]
            if not tokens:
                chunks.append((kind, whole))
                continue
            for call in whole:
                chunks.append((kind, {"name": call["name"], "tool_call_id": call["tool_call_id"]}))
                chunks.append((kind, {"arguments": call["arguments"], "tool_call_id": call["tool_call_id"]}))
        elif kind == "assistant_message" and tokens:
            chunks += [(kind, piece) for piece in re.findall(r"\S+\s*", content)]
        else:
            chunks.append((kind, content))
    return chunks


def content_of(chunk: Chunk) -> Any:
    """What a chunk brings, in the form of `expand`."""
    match chunk["message_type"]:
        case "reasoning_message":
            assert (chunk["source"], "signature" in chunk) == ("reasoner_model", True)
            return chunk["reasoning"]
        case "assistant_message":
            return chunk["content"]
        case "tool_return_message":
            returns = chunk["tool_returns"]
            first = {name: chunk[name] for name in returns[0] if name != "type"}
            assert {"type": "tool", **first} == returns[0]
            assert all(isinstance(one["stdout"], list) and isinstance(one["stderr"], list) for one in returns)
            return [(one["tool_call_id"], one["status"], one["tool_return"]) for one in returns]
        case "event_message":
            stats = chunk["event_data"]
            assert (chunk["event_type"], stats["trigger"]) == ("compaction", "post_step_context_check")
            assert stats["context_tokens_after"] < stats["context_tokens_before"] <= stats["context_window"] == 8_000
            assert stats["messages_count_after"] < stats["messages_count_before"]
            return None
        case "summary_message":
            assert chunk["summary"] and set(chunk["compaction_stats"]) == set(STATS)
            return None
        case _:
            many = chunk["tool_calls"]
            assert chunk["tool_call"] == (many[0] if isinstance(many, list) else many)
            return many


def join_texts(chunks: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The chunks with the pieces of one text as one."""
    joined: list[tuple[str, Any]] = []
    for kind, content in chunks:
        if joined and isinstance(content, str) and joined[-1][0] == kind:
            content = joined.pop()[1] + content
        joined.append((kind, content))
    return joined


async def start(server: Routed, scenario: Scenario) -> str:
    """The path of an agent's messages, ready for the scenario's run."""
    fields: dict[str, Any] = {}
    if scenario.limit is not None:  # a summary that was prepared would be taken in another run
        fields = {"context_window_limit": scenario.limit, "summaries": {"background": False}}
    rules = [{"type": "requires_approval", "tool_name": "pay"}]
    agent = await new_agent(server, tools=["look", "pay", "boom"], tool_rules=rules, **fields)
    path = f"/v1/agents/{agent['id']}/messages"
    if scenario.imported:
        old = [
            {"role": "user", "text": f"{n} " + "word " * 300, "occurred_at": "2026-01-01T00:00:00Z"}
            for n in range(scenario.imported)
        ]
        await server.post(f"{path}/import", {"messages": old})
    if scenario.before is not None:
        STAGE.play([scenario.before])
        await server.post(path, {"input": "go"})
    return path


async def run(server: Routed, path: str, scenario: Scenario, mode: str) -> list[tuple[str | None, Chunk]]:
    """The stream of the scenario's run, which is cancelled once it speaks if it has to be."""
    STAGE.play(scenario.script)
    body = scenario.body or {"input": "hi"}
    if mode == "async":
        made = await server.post(f"{path}/async", body)
        streaming = asyncio.create_task(read_stream(server, f"/v1/runs/{made['id']}/stream", {"starting_after": 0}))
    else:
        streaming = asyncio.create_task(read_stream(server, path, body | {"streaming": True} | MODES[mode]))
    if scenario.stop == "cancelled":
        await STAGE.speaking.wait()
        await server.post(f"{path}/cancel", {})
    return await streaming


def check_end(chunks: list[tuple[str | None, Chunk]], scenario: Scenario, run_id: str) -> None:
    """The stop reason, then usage; of a run that failed the error, as an event of that name."""
    stop, last = chunks[-2:]
    assert stop == (None, {"message_type": "stop_reason", "stop_reason": scenario.stop})
    if scenario.stop == "llm_api_error":
        name, error = last
        assert (name, error["message_type"], error["run_id"]) == ("error", "error_message", run_id)
        assert (error["error_type"], error["message"], error["detail"]) == ("llm_authentication", "no key", "no key")
        return
    name, usage = last
    assert (name, usage["message_type"], usage["step_count"]) == (None, "usage_statistics", scenario.steps)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
async def test_every_mode_streams_the_contract(server: Routed, name: str) -> None:
    """The kinds in order, the fields of each chunk, and the run's messages as lists and resumed streams show them."""
    scenario = SCENARIOS[name]
    for mode in MODES:
        path = await start(server, scenario)
        chunks = await run(server, path, scenario, mode)
        tokens = mode.startswith("tokens") or mode == "async"
        background = "background" in mode or mode == "async"
        plain = [chunk for _, chunk in chunks]
        for chunk in plain:
            COMPACTION_TYPES.get(chunk["message_type"], STREAMED).validate_python(chunk)
        run_id = (await server.get("/v1/runs/", limit=1))[0]["id"]
        assert {chunk["run_id"] for chunk in plain if "run_id" in chunk} <= {run_id}
        if "no pings" not in mode:
            assert plain[0]["message_type"] == "ping" and plain[0]["id"].startswith("ping-")
            assert plain[0].get("seq_id") == (1 if background else None)
            plain = plain[1:]
        assert "ping" not in {chunk["message_type"] for chunk in plain}
        check_numbers([chunk for _, chunk in chunks], background=background)
        check_end(chunks, scenario, run_id)

        said = plain[:-2]
        expected = expand(scenario.says, tokens=tokens)
        if name == "cancelled":
            # What was said before the end stays: piece by piece, or whole.
            expected = [("assistant_message", piece) for piece in (("never ", "said") if tokens else ("never said",))]
        found = [(chunk["message_type"], content_of(chunk)) for chunk in said]
        if background:  # pieces that come within a short time are stored as one
            found, expected = join_texts(found), join_texts(expected)
        assert found == expected, mode
        assert all(chunk["date"].endswith("+00:00") for chunk in said)
        of_steps = [chunk for chunk in said if chunk["message_type"] not in COMPACTION_TYPES]
        assert all(chunk["step_id"].startswith("step-") for chunk in of_steps)
        if background:
            again = await read_stream(
                server, f"/v1/runs/{run_id}/stream", {"starting_after": 0, "include_pings": "no pings" not in mode}
            )
            assert without_ping_ids(again) == without_ping_ids(chunks)
        if "compaction" in name:
            assert "summary" in {message.kind for message in STAGE.requests[-1].messages}
        if name != "cancelled":
            assert story_of(plain) == story_of(await server.get(f"/v1/runs/{run_id}/messages"))
