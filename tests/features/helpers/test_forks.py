"""A forked helper begins with the bytes of the conversation of the agent that calls, so that they are in the cache."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, ModelReply, ModelRequest, tool
from perdure.context.sections.assemble import canonical
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says
from perdure.testing.http_model import HttpModel
from tests.features.helpers.helper_office import helper_call, lead
from tests.support.office import ended_runs, results


@tool
def long_log(lines: int) -> str:
    """Return a log.

    Args:
        lines: how many lines.
    """
    chance = random.Random(0)
    return "\n".join(f"{chance.getrandbits(128):x} {chance.getrandbits(128):x}" for _ in range(lines))


@pytest.mark.parametrize("provider", ["openai", "vllm"])
async def test_the_first_request_of_a_fork_shares_the_bytes_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    """As a model server gets them: all that was said before the call, then the prompt; also where the engine speaks in
    sentences."""
    flow = [
        says("Hello Ada."),
        calls("run_helper", name="fork", prompt="What is my name?"),
        says("Ada."),
        says("It is Ada."),
    ]
    async with HttpModel(*flow) as server:
        monkeypatch.setenv(f"{provider.upper()}_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        settings = Settings(embedding="none", home=str(tmp_path), model=f"{provider}/test")
        async with await AsyncPerdure.open(tmp_path / "agents.db", settings=settings) as perdure:
            agent = await perdure.create_agent("Lead", model=f"{provider}/test")
            await agent.tools.attach("run_helper")
            await agent.send("My name is Ada")
            reply = await agent.send("Who am I?")
    asked = [request for request in server.requests if "messages" in request]
    parent, forked = asked[1], asked[2]

    assert reply.text == "It is Ada."
    assert forked["tools"] == parent["tools"]
    # Everything up to the user's last message, behind which the parent's tail and the prompt of the fork stand.
    before = _bytes(parent)[: _bytes(parent).index("Who am I?") + len("Who am I?")]
    assert _bytes(forked).startswith(before)
    assert "What is my name?" in _bytes(forked)[len(before) :]


def _bytes(request: Mapping[str, Any]) -> str:
    """What a provider caches of a request, in its order."""
    return "\n".join(json.dumps(one) for one in [request["tools"], *request["messages"]])


async def test_a_fork_shares_cut_outputs_and_memory_too(tmp_path: Path) -> None:
    """Handles of outputs that are shown in part, and deltas of memory, are the same bytes."""
    model = ScriptedModel(
        calls("long_log", lines=5_000),
        calls("memory_insert", label="human", new_string="Her name is Ada."),
        says("Noted."),
        calls("run_helper", name="fork", prompt="Side task"),
        says("Side result."),
        says("Done."),
    )
    async with lead(tmp_path, {"lead": model}, functions=[long_log], tools=("long_log",)) as (perdure, agent):
        await agent.send("Read the log")
        reply = await agent.send("Now fork")
        runs = await ended_runs(perdure)
        conversations = await agent.conversations()

    parent, forked = model.requests[3], model.requests[4]
    before = b"".join(canonical(parent).splitlines(keepends=True)[:-1])  # without the tail
    assert 'context_expand("msg-2"' in "".join(message.text for message in parent.messages)
    assert canonical(forked).startswith(before)
    assert forked.messages[-1].text.endswith("Side task")
    assert results(reply.messages)[0].text.startswith("Side result.")
    assert runs[-1].key.agent_id == agent.id
    assert [one.seq for one in conversations] == [0, 1]


async def test_forks_work_at_the_same_time_as_other_calls_of_the_answer(tmp_path: Path) -> None:
    """Each fork begins before the answer that called all of them."""
    both = ModelReply(parts=(helper_call("fork", "One", "a"), helper_call("fork", "Two", "b")))
    model = ScriptedModel(both, otherwise=says("Done."))
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        reply = await agent.send("Go")

    assert {result.call_id for result in results(reply.messages)} == {"a", "b"}
    asked = [[message.text for message in request.messages] for request in model.requests[1:3]]
    assert all(texts[0] == "Go" and len(texts) == 2 for texts in asked)


async def test_a_fork_has_no_other_model_and_does_not_fork_itself(tmp_path: Path) -> None:
    """Both are refused with a reason."""
    model = ScriptedModel(
        calls("run_helper", name="fork", prompt="x", model="test/other"),
        calls("run_helper", name="fork", prompt="x"),
        calls("run_helper", name="fork", prompt="again"),
        otherwise=says("Done."),
    )
    async with lead(tmp_path, {"lead": model, "other": ScriptedModel()}) as (perdure, agent):
        reply = await agent.send("Go")
        runs = await ended_runs(perdure)

    first, second = (result.text for result in results(reply.messages))
    assert "fork runs on your own model" in first
    assert second.startswith("Done.")
    assert "helper 'fork' waits for your own answer (fork → fork)" in model.requests[3].messages[-1].text
    assert len(runs) == 2


async def test_a_fork_shares_the_summaries_of_what_left_the_view(tmp_path: Path) -> None:
    """They stand in its requests as in those of its parent, and it opens them by the numbers that they have there."""
    named: list[str] = []

    def open_last(request: ModelRequest) -> ModelReply:
        named.extend(re.findall(r"node-\d+", request.messages[0].text))
        return calls("context_expand", handle=named[-1])

    script = [says(f"Answer {number}. " + "x" * 400) for number in range(12)]
    forks = calls("run_helper", name="fork", prompt="Side task")
    model = ScriptedModel(*script, forks, open_last, says("Side result."), says("Done."))
    async with lead(tmp_path, {"lead": model}) as (_, agent):
        for number in range(12):
            await agent.send(f"Question {number}")
            if number % 2:
                await agent.compact()
            if number == 5:
                await agent.reset()  # the summaries after it begin with another number
        await agent.send("Now fork")

    parent, forked, opened = model.requests[12:15]
    before = b"".join(canonical(parent).splitlines(keepends=True)[:-1])
    assert '"type": "summary"' in parent.messages[0].text
    assert canonical(forked).startswith(before)
    assert "Question" in opened.messages[-1].text
    assert "node-0" not in named
