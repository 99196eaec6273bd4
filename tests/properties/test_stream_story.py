"""A run told three times: live, resumed at every number, and listed afterwards; over random scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.messages import Part, Reasoning, Text, ToolCall
from perdure.core.models import ModelReply
from perdure.testing import calls, says
from tests.server.routed import Routed, new_agent, routed
from tests.support.stories import PieceStage, boom, check_numbers, look, pay, read_stream, story_of, without_ping_ids
from tests.support.strategies import effort

STAGE = PieceStage()
WORDS = "word " * 300
SPOKEN = r'"message": "Hi \u00e4 \ud83e\udded", "request_heartbeat": true}'
ARGUMENTS = {
    "send_message": "{" + SPOKEN,
    "send_message, thinking": '{"thinking": "so so", ' + SPOKEN,
    "look, thinking": '{"thinking": "hm", "place": "there", "request_heartbeat": true}',
    "send_message, cut": '{"message": "Hel',
}
"""What a call is made with, by its tool and what is special about it."""


@dataclass(frozen=True)
class Answer:
    """One answer of the model: its parts in order; of calls the names of their tools."""

    thought: str
    text: str
    tools: Sequence[str]
    calls_first: bool

    def reply(self, number: int) -> ModelReply:
        """The answer, with ids of calls that hold its number."""
        said: list[Part] = [Reasoning(self.thought)] if self.thought else []
        said += [Text(self.text)] if self.text else []
        made = [
            ToolCall(f"c{number}_{place}", name.partition(",")[0], ARGUMENTS.get(name, "{}"))
            for place, name in enumerate(self.tools)
        ]
        return ModelReply(parts=(*made, *said) if self.calls_first else (*said, *made))


answers = st.builds(
    Answer,
    thought=st.sampled_from(["", "", "well then"]),
    text=st.sampled_from(["", "one two", "naïve 🧭\n\nline "]),
    tools=st.lists(st.sampled_from(["look", "boom", "pay", "unknown", *ARGUMENTS]), min_size=1, max_size=3),
    calls_first=st.booleans(),
)


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[Routed]:
    """One server for all examples."""
    async with routed(model=STAGE, tools=[look, pay, boom]) as opened:
        yield opened


async def check_run(server: Routed, path: str, body: dict[str, Any], *, tokens: bool) -> str:
    """Stream a run, compare it with its other accounts, and return its stop reason."""
    live = await read_stream(server, path, body | {"streaming": True, "background": True, "stream_tokens": tokens})
    chunks = [chunk for _, chunk in live]
    check_numbers(chunks, background=True)
    run_id, last = chunks[0]["run_id"], max(chunk.get("seq_id") or 0 for chunk in chunks)
    for after in range(last + 1):
        rest = await read_stream(server, f"/v1/runs/{run_id}/stream", {"starting_after": after})
        expected = [(name, chunk) for name, chunk in live if (chunk.get("seq_id") or last + 1) > after]
        assert without_ping_ids(rest) == without_ping_ids(expected), after
    listed = await server.get(f"/v1/runs/{run_id}/messages")
    assert story_of(chunks) == story_of(listed)
    return str(chunks[-2]["stop_reason"])


@pytest.mark.slow
@effort(few=6, many=300)
@given(
    script=st.lists(answers, max_size=3),
    tokens=st.booleans(),
    approve=st.booleans(),
    full=st.booleans(),
    speaks=st.booleans(),
    heartbeats=st.booleans(),
)
async def test_a_run_is_told_alike(
    server: Routed, script: list[Answer], tokens: bool, approve: bool, full: bool, speaks: bool, heartbeats: bool
) -> None:
    """The same messages under the same ids with the same content, wherever a client reads them."""
    last = calls("send_message", thinking="", message="That is all.", request_heartbeat=False)
    STAGE.play(
        [*(answer.reply(number) for number, answer in enumerate(script)), last if heartbeats else says("That is all.")]
    )
    rules = [{"type": "requires_approval", "tool_name": "pay"}]
    fields: dict[str, Any] = {"context_window_limit": 8_000} if full else {}
    fields |= {"agent_type": "memgpt_agent"} if heartbeats else {}
    agent = await new_agent(server, tools=["look", "pay", "boom", "send_message"], tool_rules=rules, **fields)
    path = f"/v1/agents/{agent['id']}/messages"
    body: dict[str, Any] = {"input": "hi", "use_assistant_message": speaks}
    if full:  # a compaction makes room
        old = [{"role": "user", "text": f"{n} {WORDS}", "occurred_at": "2026-01-01T00:00:00Z"} for n in range(8)]
        await server.post(f"{path}/import", {"messages": old})
        body |= {"input": f"hi {WORDS * 4}", "include_compaction_messages": True}
    stop = await check_run(server, path, body, tokens=tokens)
    while stop == "requires_approval":
        state = await server.get(f"/v1/agents/{agent['id']}", include="agent.pending_approval")
        decisions = [
            {"type": "approval", "tool_call_id": call["tool_call_id"], "approve": approve}
            for call in state["pending_approval"]["tool_calls"]
        ]
        stop = await check_run(
            server,
            path,
            {"messages": [{"type": "approval", "approvals": decisions}], "use_assistant_message": speaks},
            tokens=tokens,
        )
    assert heartbeats or stop == "end_turn"
