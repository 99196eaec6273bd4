"""Requests that come twice: at once, to two processes, or after a process died between two steps."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.core.ids import AgentId
from perdure.core.messages import Text
from perdure.core.models import ModelDelta
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.features.openai_front.service import Chats
from perdure.features.openai_front.values import Chat, ChatText, ConversationAnchor
from perdure.library.agent import AsyncAgent
from perdure.testing import says
from tests.features.openai_front.support import PATH, program
from tests.support.two_apps import STORES, Gate, address_of, two_apps


def chat_of(*texts: str, name: str = "") -> Chat:
    """A request that sends these texts of a user and an agent by turns."""
    roles = ("user", "assistant")
    said = [ChatText(roles[place % 2], text) for place, text in enumerate(texts)]
    return Chat(texts=said, anchor=ConversationAnchor(name=name))


def request_of(agent_id: AgentId, chat: Chat) -> RunRequest:
    return RunRequest(agent_id=agent_id, messages=(NewMessage((Text(chat.new[-1]),)),))


async def said_in(agent: AsyncAgent) -> list[list[str]]:
    found = [one for one in await agent.conversations() if one.seq > 0]
    return [[row.text for row in await agent.messages(conversation=one.id)] for one in found]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", ["", "tea"])
async def test_two_processes_answer_a_request_once(tmp_path: Path, store: str, name: str) -> None:
    """That came to both, in a conversation with a name or without."""
    model = Gate(*[says(f"A{number}") for number in range(9)])
    async with two_apps(await address_of(store, tmp_path), model) as (first, second):
        agent = await first.create_agent("ann", tools=())
        chat = chat_of("U1", name=name)
        both = (first, second) * 3
        begun = await asyncio.gather(
            *(Chats(one.app, agent.id).begin(chat, request_of(agent.id, chat)) for one in both)
        )
        model.let(9)
        replies = zip(both, begun, strict=True)
        answers = [(await one.agent_of(agent.id).reply_to(accepted)).text for one, accepted in replies]

        assert {*answers} == {"A0"} and model.asked == 1
        assert await said_in(agent) == [["U1", "A0"]]


async def test_a_process_that_dies_before_the_run_begins_loses_nothing() -> None:
    """The next try begins it, in the conversation that was chosen; what was to be imported is there once."""
    async with program(says("A3")) as one:
        chats = Chats(one.server.library.app, one.agent.id)
        chat = chat_of("U1", "A1", "U2")
        lost = await chats.find_place(chat, one.server.library.app.ports.ids.new("run"))
        one.clock.advance(10)
        accepted = await chats.begin(chat, request_of(one.agent.id, chat))
        await one.agent.reply_to(accepted)

        assert accepted.run.id == lost.said_in
        assert await one.conversations() == [["U1", "A1", "U2", "A3"]]


async def test_a_long_dead_try_is_forgotten() -> None:
    """The request begins anew behind what is known."""
    async with program(says("A1"), says("A2"), says("A3")) as one:
        await one.ask("U1")
        chats = Chats(one.server.library.app, one.agent.id)
        await chats.find_place(chat_of("U1", "A1", "U2"), one.server.library.app.ports.ids.new("run"))
        one.clock.advance(100)
        await one.ask("U1", "A1", "U2")

        assert await one.conversations() == [["U1", "A1", "U2", "A2"]]


@pytest.mark.parametrize("path", [PATH, "/openai/v1/responses"])
async def test_who_joins_an_answer_under_way_gets_all_of_it(path: str) -> None:
    """The pieces that were made before it came are in the whole text."""
    gate = Gate(says("one two three"), deltas=(ModelDelta("text", "one "), ModelDelta("text", "two ")))
    async with program(model=gate) as one:
        body = one.body("U1") if path == PATH else {"model": "ann", "input": "U1"}
        first = asyncio.create_task(one.server.http.post(path, json={**body, "stream": True}))
        await gate.reached(1)
        await asyncio.sleep(0.1)
        second = asyncio.create_task(one.server.http.post(path, json={**body, "stream": True}))
        await asyncio.sleep(0.1)
        gate.let()
        answers = [(await task).text for task in (first, second)]

    texts = []
    for answer in answers:
        chunks = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
        pieces = [one["choices"][0]["delta"].get("content", "") for one in chunks if one.get("choices")]
        pieces += [one["delta"] for one in chunks if one.get("type") == "response.output_text.delta"]
        texts.append("".join(pieces))
    assert texts == ["one two three"] * 2
