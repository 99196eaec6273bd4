"""A program whose agents count, each in its own line of a block that all share: `counting_program STORE COUNT NAME...`.

It prints `ready`, begins when it reads a line, and prints at its end, in JSON, how many edits were refused.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from perdure import AsyncPerdure, ModelReply, ModelRequest
from perdure.settings import Settings
from perdure.testing import calls, fails, says

LABEL = "counts"
TURN = 20
"""How many calls one message to an agent leads to."""

_LINE = re.compile(r"(a\d) (\d{4})")  # also where JSON writes a line's end as \\n


def block_of(counts: dict[str, int]) -> str:
    """The text of the block."""
    return "\n".join(f"{name} {number:04}" for name, number in sorted(counts.items()))


def counts_of(text: str) -> dict[str, int]:
    """Name -> number in the last line of that name that a text shows."""
    return {name: int(number) for name, number in _LINE.findall(text)}


@dataclass
class Counter:
    """A model that counts its line up to `count`: by turns it replaces the line, and writes the block anew."""

    name: str
    count: int
    names: tuple[str, ...]
    refused: int = 0
    number: int = 0
    _calls: int = 0
    _end: int = TURN
    _open_call: str = ""
    _shown: dict[str, int] = field(default_factory=dict)

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelReply]:
        if request.purpose != "reply":
            raise fails("summaries are extracts")
        for text in (request.system, *(message.text for message in request.messages)):
            if {*self.names} <= (counts := counts_of(text)).keys():
                self._shown = counts  # the newest text comes last
        for result in [result for one in request.messages for result in one.results]:
            if result.call_id == self._open_call:
                self._open_call = ""
                self.number += result.status == "success"
                self.refused += result.status != "success"
        ended = self.number == self.count or self._calls == self._end
        self._end = self._calls + TURN if ended else self._end
        yield says("Done.") if ended else self._edit()

    def _edit(self) -> ModelReply:
        self._calls += 1
        self._open_call = f"call-{self._calls}"
        before, after = (f"{self.name} {number:04}" for number in (self.number, self.number + 1))
        if self._calls % 2:
            return calls("memory_replace", label=LABEL, old_string=before, new_string=after, call_id=self._open_call)
        text = block_of({**self._shown, self.name: self.number + 1})
        return calls("memory_rethink", label=LABEL, new_memory=text, call_id=self._open_call)


async def open_store(address: str, *counters: Counter) -> AsyncPerdure:
    """The store, with the models of these agents."""
    settings = replace(Settings(), model="test/a0", embedding="none", facts="off")
    models = {f"test/{counter.name}": counter for counter in counters}
    return await AsyncPerdure.open(address, models=models, settings=settings)


async def count(perdure: AsyncPerdure, counter: Counter) -> None:
    """Have an agent count to its end."""
    agent = await perdure.agent(counter.name)
    while counter.number < counter.count:
        reply = await agent.send("Go on.")
        assert reply.stop_reason == "end_turn", reply
        assert counter.refused < 20 * counter.count, "rewrites are refused again and again"


async def main(address: str, most: str, *names: str) -> None:
    counters = [Counter(name, int(most), tuple(f"a{place}" for place in range(8))) for name in names]
    async with await open_store(address, *counters) as perdure:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(count(perdure, counter) for counter in counters))
    print(json.dumps({counter.name: counter.refused for counter in counters}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
