"""What a provider's prefix cache serves of the requests that are really sent: captured at an HTTP model, priced as
Anthropic does.

60 turns of 4 calls, 6,000 tokens of tools, 5,500 of system text and memory, a window of 100,000, and a memory edit at
every third call, by the agent and from outside in turn. Prices are multiples of the plain input price. A request reads
what an earlier one wrote up to a cache mark; the marks are those of the adapters: behind the tools, the system text,
the previous turn and the log's end. The volatile tail stands behind them all and is paid in full.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from perdure import AsyncPerdure, StoredEvent
from perdure.core.events import PrefixRewritten, ViewCompacted
from perdure.core.models import ModelReply
from perdure.core.runs import Usage
from perdure.domain.blocks.units import NewBlock
from perdure.providers.openai_chat.model import OpenAIChat
from perdure.providers.provider import Endpoint, ModelSource
from perdure.testing import HttpModel, InlineStore, calls, says

__all__ = ["CacheCost", "cache_cost"]

MODEL = "openai/test"
WRITE, READ, PLAIN = 1.25, 0.10, 1.0
TURNS, CALLS = 60, 4
EDIT_EVERY = 3
WINDOW = 100_000
TOOLS_TOKENS, SYSTEM_TOKENS, MEMORY_TOKENS = 6_000, 3_000, 2_500

Count = Callable[[str], int]


@dataclass(frozen=True)
class CacheCost:
    """Shares of all input tokens.

    Args:
        hit_rate: read from the cache.
        cost: of the price without a cache; `cost_with_summaries` with what the summaries took, at the plain price.
        rewrites: requests that did not begin with the one before, each with a recorded reason; `unexplained` without.
    """

    requests: int
    input_tokens: int
    hit_rate: float
    cost: float
    cost_with_summaries: float
    rewrites: int
    unexplained: int
    compactions: int
    largest: int


@dataclass
class _Provider:
    """The scripted model's side: it counts what it is sent, says how much that was, and calls tools as planned."""

    count: Count
    plan: random.Random
    sent: list[list[tuple[str, int]]] = field(default_factory=list)
    """Of each request the lines of its canonical form with their tokens; the last one is the tail."""
    summaries: list[int] = field(default_factory=list)
    edits: int = 0
    step: int = 0

    def answer(self, body: Mapping[str, Any]) -> ModelReply:
        lines = [(line, self.count(line)) for line in _lines(body)]
        tokens = sum(tokens for _, tokens in lines)
        usage = Usage(input_tokens=tokens, output_tokens=100)
        if not body.get("tools"):
            self.summaries.append(tokens)
            words = body["messages"][-1]["content"].split()
            return says(
                "They looked things up: " + " ".join(words[len(words) // 2 : len(words) // 2 + 400]), usage=usage
            )
        self.sent.append(lines)
        self.step += 1
        said = _prose(self.plan, self.plan.randrange(60, 220))
        if self.step % CALLS == 0:
            return says(said, usage=usage)
        if self.step % (2 * EDIT_EVERY) == EDIT_EVERY:
            self.edits += 1
            call = calls("core_memory_append", label="notes", content=f"note {self.edits}: {said[:100]}")
            return ModelReply(parts=call.parts, usage=usage)
        call = calls("look_up_0", words=self.plan.randrange(150, 1_800), why=said)
        return ModelReply(parts=call.parts, usage=usage)


def _lines(body: Mapping[str, Any]) -> list[str]:
    """The request in a canonical form: tools, then messages, a line each; what was joined to the tail is parted."""
    tools = [json.dumps(tool, sort_keys=True, ensure_ascii=False) for tool in body.get("tools", ())]
    messages = [
        json.dumps({**message, "content": content}, sort_keys=True, ensure_ascii=False)
        for message in body["messages"]
        for content in _parted(message)
    ]
    return tools + messages


def _parted(message: Mapping[str, Any]) -> list[Any]:
    """Neighbouring texts in the user's role are sent as one message; each envelope begins a line of its own."""
    content = message["content"]
    if message["role"] != "user":
        return [content]
    first, *envelopes = re.split(r'\n\n(?=\{"type": ")', content)
    return [first, *envelopes]


def _prose(rng: random.Random, tokens: int) -> str:
    words = (
        "harbour",
        "question",
        "train",
        "of",
        "the",
        "a",
        "Turin",
        "seven",
        "is",
        "was",
        "unlikely",
        "cheap",
        "and",
    )
    return " ".join(rng.choice(words) for _ in range(tokens))


def look_up_tool(number: int) -> Callable[..., str]:
    """A tool whose schema and description take their share of the tools' tokens."""

    def look_up(words: int, why: str) -> str:
        rng = random.Random(words)
        return _prose(rng, words)

    look_up.__name__ = f"look_up_{number}"
    words = _prose(random.Random(number), 260)
    look_up.__doc__ = f"Look something up. {words}\n\nArgs:\n    words: How much to find.\n    why: What for."
    return look_up


async def cache_cost(count: Count, *, turns: int = TURNS) -> CacheCost:
    """Talk, capture, and price. `count` counts the tokens of a text."""
    provider = _Provider(count, random.Random(7))
    rewritten: list[int] = []
    reasons: list[str] = []
    compactions = 0
    async with HttpModel(otherwise=provider.answer) as server:
        model = OpenAIChat(ModelSource(endpoint=Endpoint(provider="openai", base_url=server.url), name="test"))
        tools = [look_up_tool(number) for number in range(TOOLS_TOKENS // 330)]
        async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, tools=tools) as perdure:
            agent = await perdure.create_agent(
                "captured",
                model=MODEL,
                system=_prose(random.Random(1), SYSTEM_TOKENS - 100),
                tools=[tool.__name__ for tool in tools] + ["core_memory_append"],
                blocks=[
                    NewBlock(label="notes", value=_prose(random.Random(2), MEMORY_TOKENS // 2), limit_chars=100_000),
                    NewBlock(label="human", value=_prose(random.Random(3), MEMORY_TOKENS // 2), limit_chars=100_000),
                ],
                settings={"context_window_tokens": WINDOW},
            )
            for turn in range(turns):
                if turn % EDIT_EVERY != 1:  # 40 from outside, and as many of the agent's own
                    await agent.blocks.update("human", _prose(random.Random(turn), 40))
                async for sent in agent.stream(_prose(provider.plan, provider.plan.randrange(40, 260))):
                    event = sent.event if isinstance(sent, StoredEvent) else None
                    if isinstance(event, PrefixRewritten):
                        rewritten.append(len(provider.sent))
                        reasons.append(event.reason)
                    compactions += isinstance(event, ViewCompacted)
        await model.aclose()
    return _priced(provider, set(rewritten), compactions)


def _priced(provider: _Provider, rewritten: set[int], compactions: int) -> CacheCost:
    written: set[tuple[str, ...]] = set()
    total = hits = 0
    cost = 0.0
    for lines in provider.sent:
        stable = lines[:-1]
        texts = tuple(line for line, _ in stable)
        marks = _marks(texts)
        hit = max((mark for mark in marks if texts[:mark] in written), default=0)
        # A mark that an earlier request left inside what this one only goes on from is found too.
        hit = max([hit, *(len(key) for key in written if texts[: len(key)] == key)])
        read = sum(tokens for _, tokens in stable[:hit])
        fresh = sum(tokens for _, tokens in stable[hit:])
        tail = lines[-1][1]
        total += read + fresh + tail
        hits += read
        cost += read * READ + fresh * WRITE + tail * PLAIN
        written |= {texts[:mark] for mark in marks}
    breaks = [
        number
        for number, (before, after) in enumerate(pairwise(provider.sent), 1)
        if [line for line, _ in after[: len(before) - 1]] != [line for line, _ in before[:-1]]
    ]
    return CacheCost(
        requests=len(provider.sent),
        input_tokens=total,
        hit_rate=hits / total,
        cost=cost / total,
        cost_with_summaries=(cost + sum(provider.summaries) * PLAIN) / total,
        rewrites=len(breaks),
        unexplained=len([number for number in breaks if number not in rewritten]),
        compactions=compactions,
        largest=max(sum(tokens for _, tokens in lines) for lines in provider.sent),
    )


def _marks(texts: tuple[str, ...]) -> set[int]:
    """How many lines stand before each cache mark."""
    system = next(place for place, line in enumerate(texts) if '"role": "system"' in line)
    said = [place for place, line in enumerate(texts) if '"role": "user"' in line]
    return {system, system + 1, max(said, default=len(texts)), len(texts)}


def main() -> None:
    """Print the figures, tokens counted by a real tokenizer."""
    from tests.support.real_tokens import real_tokens

    print(asyncio.run(cache_cost(real_tokens)))


if __name__ == "__main__":
    main()
