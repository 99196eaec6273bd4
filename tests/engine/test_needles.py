"""Needles in a conversation far longer than its window: found by handles alone, in few calls and tokens."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from perdure import AsyncPerdure
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.testing import InlineStore, SequentialIds, calls, says
from perdure.testing.clock import FakeClock
from tests.support.real_tokens import real_tokens, tokens_of_request

FULL = os.environ.get("PERDURE_FAULTS") == "full"
MODEL = "test/seeker"
TOKENS, NEEDLES = (1_000_000, 100) if FULL else (15_000, 5)
WINDOW = 32_000 if FULL else 6_000
MOST_CALLS, MOST_TOKENS = 4, 3_000

_ASKED = re.compile(r"What is the code of (K\d+x)\?")
_FOUND = re.compile(r"^(msg-\d+):\d+ .*called K", re.MULTILINE)
_GO_ON = re.compile(r'from="(msg-[\d:]+)"')
_PLACES = ("Turin", "Genoa", "Lisbon", "Krakow", "Oslo", "Fukuoka", "Leeds", "Ghent", "Basel", "Cork", "Izmir", "Quito")


@dataclass
class Search:
    """The calls of one search, and the tokens of their answers."""

    calls: int = 0
    tokens: int = 0


@dataclass
class Seeker:
    """A model that chats, and that looks for a code by handles: it searches for its name, and opens what it finds.

    It never answers from what stands in its window.
    """

    searches: list[Search] = field(default_factory=list)
    largest: int = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if self.searches or FULL:
            self.largest = max(self.largest, tokens_of_request(request))
        yield self._summary(request) if request.purpose == "summary" else self._answer(request)

    def _summary(self, request: ModelRequest) -> ModelReply:
        words = request.messages[0].text.split()
        return says("They spoke of journeys and trains between towns; " + " ".join(words[40:60]))

    def _answer(self, request: ModelRequest) -> ModelReply:
        said = max(index for index, message in enumerate(request.messages) if message.role == "user")
        asked = _ASKED.search(request.messages[said].text)
        if asked is None:
            return says("Noted: the regional train takes two hours and is cheap, the fast one goes at nine.")
        results = [message.text for message in request.messages[said + 1 :] if message.role == "tool"]
        if not results:
            self.searches.append(Search())
        search = self.searches[-1]
        search.calls, search.tokens = len(results), sum(map(real_tokens, results))
        number = f"c{len(results)}"
        if found := next((match[0] for text in results if (match := re.search(r"V\d+", text))), None):
            return says(found)
        if len(results) >= 2 * MOST_CALLS:
            return says("I did not find it.")
        last = results[-1] if results else ""
        if results and (handle := _FOUND.search(last)) is not None:
            return calls("context_expand", handle=handle[1], grep="code", call_id=number)
        on = _GO_ON.search(last)
        further = {"from": on[1]} if on else {}
        return calls("context_grep", pattern=f"called {asked[1]} is", call_id=number, **further)


def turn(number: int, needle: str = "") -> str:
    """Some lines about journeys; a needle stands in the middle of them, its code on a line of its own."""
    lines = [
        f"On day {number}.{line} I went from {_PLACES[(number + line) % 12]} to {_PLACES[(number * 7 + line) % 12]} by"
        f" train {number * 31 + line}, had tea at {line + 7}:30 and a talk about K{number + 10_000}x with nobody."
        for line in range(12)
    ]
    return "\n".join([*lines[:6], *([needle] if needle else []), *lines[6:]])


@pytest.mark.slow
async def test_every_needle_is_found_by_its_handle() -> None:
    """At even depths; the window never holds more than it may."""
    model = Seeker()
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, clock=FakeClock(), ids=SequentialIds()
    ) as perdure:
        agent = await perdure.create_agent(
            "a", model=MODEL, settings={"context_window_tokens": WINDOW, "auto_recall": False}
        )
        turns = TOKENS // real_tokens(turn(0))
        every = turns // NEEDLES
        codes: dict[str, str] = {}
        for number in range(turns):
            needle = ""
            if number % every == every // 2 and len(codes) < NEEDLES:
                codes[f"K{number}x"] = f"V{number * 7919}"
                needle = f"The thing called K{number}x is what you need to know:\nits code is V{number * 7919}."
            await agent.send(turn(number, needle))
        found = {name: (await agent.send(f"What is the code of {name}?")).text for name in codes}

    assert len(codes) == NEEDLES
    assert found == codes
    assert max(search.calls for search in model.searches) <= MOST_CALLS
    assert max(search.tokens for search in model.searches) <= MOST_TOKENS
    assert model.largest <= WINDOW
    print(  # the figures of the long form
        f"{turns} turns, {len(codes)} needles found, at most {max(search.calls for search in model.searches)} calls and"
        f" {max(search.tokens for search in model.searches)} tokens"
    )
