"""A conversation of thousands of messages in a small window: its cost, and whether what was said is found again."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from perdure import Agent, Perdure
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.settings import Settings
from perdure.testing import calls, says

__all__ = ["LongConversation", "Searcher", "long_conversation"]

MODEL = "test/searcher"
FACT_EVERY = 50  # turns
MEASURED = 80  # the last turns, whose cost is compared with those of a conversation that begins beside them
WARM = 10  # turns, so that the short one has 20 to 180 messages while it is measured, 100 in the middle
MOST_CALLS = 12

_ASKED = re.compile(r"What is the code of (\w+)\? It was told in message (\d+)\. Look by (\w+)\.")
_GO_ON = re.compile(r'from="(msg-[\d:]+)"')
_NODE = re.compile(r"(node-\d+)\W.{0,40}?msg-(\d+)(?:\.\.(\d+))?", re.DOTALL)


def fact(number: int) -> str:
    return f"The code of K{number}x is V{number * 7919}."


@dataclass
class Searcher:
    """A model that chats, summarises, and finds codes it was told again by the handles in its context alone.

    Asked to look by `pattern` it greps; by `place` it opens node after node, down to the message.

    Args:
        weigh: counts a request's tokens, which then must not be more than `budget`; `too_large` holds those that were.
    """

    budget: int = 0
    weigh: Callable[[ModelRequest], int] | None = None
    too_large: list[int] = field(default_factory=list)
    requests: int = 0
    calls: list[int] = field(default_factory=list)
    """How many calls each search took."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        tokens = self.weigh(request) if self.weigh else 0
        if tokens > self.budget:
            self.too_large.append(tokens)
        reply = self._summary(request) if request.purpose == "summary" else self._answer(request)
        self.requests += 1
        yield replace(reply, usage=Usage(input_tokens=tokens, output_tokens=5))

    def _summary(self, request: ModelRequest) -> ModelReply:
        words = request.messages[-1].text.split()
        return says("They went through the list of harbours and trains; " + " ".join(words[20:50]))

    def _answer(self, request: ModelRequest) -> ModelReply:
        said = max(index for index, message in enumerate(request.messages) if message.role == "user")
        asked = _ASKED.search(request.messages[said].text)
        if asked is None:
            return says("Noted: about 170 kilometres, two hours by the regional train, which is cheap.")
        name, place, way = asked[1], int(asked[2]), asked[3]
        told = re.compile(rf"code of {name} is (V\d+)")
        results = [message for message in request.messages[said + 1 :] if message.role == "tool"]
        seen = [message.text for message in (*request.messages[:said], *results) if message.kind != "summary"]
        if found := next((match[1] for text in seen if (match := told.search(text))), None):
            self.calls.append(len(results))
            return says(found)
        if len(results) >= MOST_CALLS:
            return says("I did not find it.")
        number = f"c{len(results)}"
        last = results[-1].text if results else ""
        if way == "pattern":
            on = _GO_ON.search(last)
            further = {"from": on[1]} if on else {}
            return calls("context_grep", pattern=f"code of {name} is", call_id=number, **further)
        opened = {call.arguments for message in request.messages[said:] for call in message.calls}
        for node, first, until in _NODE.findall(last or _summary_of(request)):
            if int(first) <= place <= int(until or first) and not any(f'"{node}"' in one for one in opened):
                return calls("context_expand", handle=node, call_id=number)
        return calls("context_expand", handle=f"msg-{place}", call_id=number)


def _summary_of(request: ModelRequest) -> str:
    return next((message.text for message in request.messages if message.kind == "summary"), "")


@dataclass(frozen=True)
class LongConversation:
    """What came of it. Costs are CPU milliseconds a message (a turn has two), its share of compactions included."""

    messages: int
    facts: int
    found: int
    most_calls: int
    too_large: int
    early_ms: float
    late_ms: float


def long_conversation(
    folder: Path, *, messages: int, window: int = 8_000, weigh: Callable[[ModelRequest], int] | None = None
) -> LongConversation:
    """Talk for so many messages, planting a fact every 50 turns, then ask for each."""
    model = Searcher(window - window // 4, weigh)
    turns = messages // 2
    settings = replace(Settings(), model=MODEL, context_window_tokens=window)
    places: dict[int, int] = {}
    early = late = 0.0
    with Perdure(folder / "long.db", models={MODEL: model}, settings=settings) as perdure:
        long, short = (
            perdure.create_agent(name, settings={"context_window_tokens": window}) for name in ("long", "short")
        )
        for turn in range(turns):
            began = time.process_time()
            if turn % FACT_EVERY == 7:
                places[turn] = _say(long, fact(turn))
            else:
                _say(long, _chat(turn))
            if (since := turn - (turns - MEASURED)) < 0:
                continue
            # In turn, as the speed of a machine changes: a conversation of about 100 messages beside the long one.
            late += time.process_time() - began
            if since == 0:
                for earlier in range(WARM):
                    _say(short, _chat(earlier))
            began = time.process_time()
            _say(short, _chat(since))
            early += time.process_time() - began
        found = sum(_found(long, turn, seq, by) for turn, seq in places.items() for by in ("pattern", "place"))
    return LongConversation(
        messages=messages,
        facts=2 * len(places),
        found=found,
        most_calls=max(model.calls, default=0),
        too_large=len(model.too_large),
        early_ms=early * 1000 / (2 * MEASURED),
        late_ms=late * 1000 / (2 * MEASURED),
    )


def _chat(turn: int) -> str:
    return f"Turn {turn}: how far is it from Turin to Genoa, and which train do you take at {turn}?"


def _say(agent: Agent, text: str) -> int:
    """The number of the message that was said."""
    reply = agent.send(text)
    return reply.messages[0].seq - 1


def _found(agent: Agent, turn: int, seq: int, by: str) -> bool:
    text = agent.send(f"What is the code of K{turn}x? It was told in message {seq}. Look by {by}.").text
    return text == f"V{turn * 7919}"


def main() -> None:
    """Print what a conversation of 5,000 messages comes to."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        print(long_conversation(Path(folder), messages=5_000))


if __name__ == "__main__":
    main()
