"""A simulated month: where each memory comes from, and what was in the request behind each answer."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.context.sections.assemble import digest_of, parse_recalled
from perdure.core.errors import NotFound
from perdure.core.ids import MessageId, RunId
from perdure.core.messages import Part, Text, ToolCall
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.core.text.markup import escape_tags
from perdure.domain.blocks.units import NewBlock
from perdure.features.origins.origin_values import AnswerOrigin, MemoryOrigin
from perdure.library.agent import AsyncAgent
from perdure.settings import Settings
from perdure.testing import FakeClock, InlineStore, SequentialIds

FULL = os.environ.get("PERDURE_FAULTS") == "full"
MESSAGES, SAMPLE = (300, 100) if FULL else (16, 8)
MODEL = "test/planned"
CUT_CHARS = 60
LABELS = ("human", "persona", "tasks")
SEARCHES = ("archival_memory_search", "conversation_search")


class Planned:
    """A model that makes the calls of its plan, one answer each, then says so."""

    def __init__(self) -> None:
        self.plan: list[Any] = []
        self.requests: dict[str, ModelRequest] = {}

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if request.purpose == "summary":
            yield ModelReply(parts=(Text("They spoke of many things."),), usage=Usage(input_tokens=5, output_tokens=5))
            return
        self.requests[digest_of(request)] = request
        parts: tuple[Part, ...] = (Text("Done."),)
        if self.plan:
            calls = enumerate(self.plan.pop(0))
            parts = tuple(
                ToolCall(f"call_{len(self.plan)}_{index}", name, json.dumps(arguments))
                for index, (name, arguments) in calls
            )
        yield ModelReply(parts=parts, usage=Usage(output_tokens=5))


@dataclass
class Truth:
    """Who wrote a memory: the message and run, and the tool; None for what a person wrote."""

    message_id: MessageId
    run_id: RunId
    tool: str


@dataclass
class Month:
    """What happened, by the words that only one memory has."""

    agent: AsyncAgent
    model: Planned
    rng: random.Random
    memories: dict[str, Truth | None] = field(default_factory=dict)
    answers: list[MessageId] = field(default_factory=list)
    words: int = 0

    def word(self) -> str:
        self.words += 1
        return f"fact{self.words:04}x"

    async def say(self) -> None:
        """A message, whose words the agent puts somewhere in up to two answers of up to two calls each."""
        plan, stored = [], {}
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            calls = []
            for label in self.rng.sample(LABELS, self.rng.choice((1, 1, 2))):
                word = self.word()
                kind = self.rng.random()
                if kind < 0.5:
                    calls.append(("core_memory_append", {"label": label, "content": f"- {word} of {label}"}))
                elif kind < 0.7:
                    calls.append(("archival_memory_insert", {"content": f"Note {word} about {label}."}))
                elif kind < 0.85 and (old := await self.line_of(label)):
                    arguments = {"label": label, "old_content": old, "new_content": f"- {word} of {label}"}
                    calls.append(("core_memory_replace", arguments))
                else:
                    calls.append((self.rng.choice(SEARCHES), {"query": f"about {label}"}))
                if calls[-1][0] not in SEARCHES:
                    stored[word] = calls[-1][0]
            plan.append(calls)
        word = self.word()
        self.model.plan = list(plan)
        text = f"I say {word} {json.dumps(plan)}"
        reply = await self.agent.send(text)
        (told,) = [one for one in await self.agent.messages(limit=9, newest_first=True) if one.text == text]
        for word, tool in stored.items():
            self.memories[word] = Truth(told.id, reply.run_id, tool)
        self.answers += [message.id for message in reply.messages if message.role == "assistant"]

    async def line_of(self, label: str) -> str | None:
        lines = [line for line in (await self.agent.blocks.get(label)).value.split("\n") if line.startswith("- ")]
        return self.rng.choice(lines) if lines else None

    async def edit_by_hand(self) -> None:
        """A person adds a line to a block, or puts one in front of all others."""
        word, label = self.word(), self.rng.choice(LABELS)
        block = await self.agent.blocks.get(label)
        line = f"- {word} by hand"
        value = f"{block.value}\n{line}" if self.rng.random() < 0.5 else f"{line}\n{block.value}"
        await self.agent.blocks.update(label, value=value)
        self.memories[word] = None


async def live(messages: int, seed: int) -> tuple[AsyncPerdure, Month]:
    """A month of messages, edits by hand, a small window and a reset."""
    model, clock, rng = Planned(), FakeClock(), random.Random(seed)
    library = await AsyncPerdure.open(
        store=InlineStore(),
        models={MODEL: model},
        clock=clock,
        ids=SequentialIds(),
        settings=Settings(model=MODEL, embedding="none"),
    )
    agent = await library.create_agent(
        "Ada",
        blocks=[NewBlock(label=label, value="It begins.", limit_chars=50_000) for label in LABELS],
        tools=("core_memory_append", "core_memory_replace", "archival_memory_insert", *SEARCHES),
        settings={"context_window_tokens": 16_000 if FULL else 7_000, "auto_recall": {"floor": 0}},
    )
    month = Month(agent, model, rng)
    for number in range(messages):
        clock.advance(timedelta(days=30 / messages).total_seconds())
        await month.say()
        if rng.random() < 0.3:
            await month.edit_by_hand()
        if number == messages // 2:
            await agent.reset()
    return library, month


async def check_memory(month: Month, word: str) -> bool:
    """The memory with this word has the source that it has in truth. Returns whether it still stands somewhere."""
    truth = month.memories[word]
    try:
        origin = await month.agent.why(word)
    except NotFound:  # a call that was refused stored nothing
        return False
    assert isinstance(origin, MemoryOrigin) and word in origin.text
    write = next(one for one in reversed(origin.writes) if one.text is not None)

    assert word in (write.text or "")
    if truth is None:
        assert (write.author, write.run_id, write.messages) == ("user", None, ())
    else:
        assert (write.author, write.run_id, write.tool) == ("agent", truth.run_id, truth.tool)
        assert [message.id for message in write.messages] == [truth.message_id]
        assert word in write.messages[0].text and word in (write.arguments or "")
    return True


def check_answer(origin: AnswerOrigin, sent: ModelRequest) -> None:
    """All that is listed was in the request that the model got, and nothing of it is missing."""
    assert origin.problem is None
    assert [message.text for message in origin.messages] == [message.text for message in sent.messages]
    assert origin.tail == sent.tail

    prompt = [block for block in origin.blocks if block.change is None]
    values = re.findall(r"<value>\n(.*?)\n</value>", sent.system, re.DOTALL)
    assert [escape_tags(block.text or "", frozenset(LABELS)) for block in prompt] == values

    by_id = {message.id: message for message in origin.messages}
    changes = [block for block in origin.blocks if block.change is not None]
    deltas = [message for message in origin.messages if message.kind == "memory_delta"]
    assert [block.message_id for block in changes if by_id[block.message_id].kind == "memory_delta"] == [
        message.id for message in deltas
    ]
    results = [result for message in sent.messages for result in message.results]
    edits = [one for one in results if one.name.startswith("core_memory") and one.status == "success"]
    own = [block for block in changes if by_id[block.message_id].kind == "message"]
    # A result that left the view in part shows the beginning.
    assert sorted((block.text or "")[:CUT_CHARS] for block in own) == sorted(one.text[:CUT_CHARS] for one in edits)

    summaries = [json.loads(message.text) for message in sent.messages if message.kind == "summary"]
    assert [(one.handle, one.text) for one in origin.summaries] == [
        (node["handle"], node["summary"]) for summary in summaries for node in summary["nodes"]
    ]
    assert [search.text for search in origin.searches] == [one.text for one in results if one.name in SEARCHES]
    recalled = parse_recalled(sent.tail)
    assert len(origin.recalled) == len(re.findall(r"^\[\d+\] ", recalled, re.MULTILINE))
    shown = [line for piece in origin.recalled for line in piece.text.split("\n")]
    assert all(piece.text for piece in origin.recalled) and all(line in recalled for line in shown)


@pytest.mark.slow
async def test_memories_and_answers_of_a_month_have_their_true_origins() -> None:
    """Source message, run and tool of random memories, and the parts of the requests behind random answers."""
    library, month = await live(MESSAGES, seed=1)
    async with library:
        found = 0
        for word in month.rng.sample(sorted(month.memories), len(month.memories)):
            found += await check_memory(month, word) if found < SAMPLE else 0
        seen = {"summaries": 0, "recalled": 0, "searches": 0, "blocks": 0}
        for message_id in month.rng.sample(month.answers, min(SAMPLE, len(month.answers))):
            origin = await month.agent.why(message_id)
            assert isinstance(origin, AnswerOrigin) and origin.message_id == message_id
            step = await month.agent.explain(origin.step_id)
            check_answer(origin, month.model.requests[step.digest])
            for part in seen:
                seen[part] += len(getattr(origin, part))

    assert found == SAMPLE
    assert all(seen.values()), seen
