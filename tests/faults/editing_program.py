"""A program whose agent writes line after line into a block that it shares: `editing_program STORE NAME COUNT`.

It prints `ready`, begins when it reads a line, and prints at its end, in JSON, which lines the agent was not
shown, how many edits were refused, and how many lines of the other agent it has seen.
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

LABEL = "shared"
TURN = 10
"""How many edits one message to an agent leads to."""

_LINE = re.compile(r"(?:ann|bob)-\d{4}")


def lines_of(text: str) -> list[str]:
    """The lines of the block that a text shows, in order."""
    return _LINE.findall(text)


async def open_store(path: str, *editors: Editor) -> AsyncPerdure:
    """The store at `path`, with the models of these agents."""
    settings = replace(Settings(), model="test/ann", embedding="none")
    models = {f"test/{editor.name}": editor for editor in editors}
    perdure = await AsyncPerdure.open(path, models=models, settings=settings)
    for editor in editors:
        editor.perdure = perdure
    return perdure


@dataclass
class Editor:
    """A model that adds `count` lines to the block, each by another tool than the one before, until each was accepted.

    `missed` are lines that stood in the block when it was asked, and that its next request did not show.
    """

    name: str
    count: int
    missed: list[str] = field(default_factory=list)
    refused: int = 0
    seen: int = 0
    """How many of the other agent's lines its requests have shown."""
    perdure: AsyncPerdure | None = None
    _number: int = 0
    _calls: int = 0
    _open_call: str = ""
    _stood: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Have the agent write all of its lines."""
        assert self.perdure is not None
        agent = await self.perdure.agent(self.name)
        while self._number < self.count:
            reply = await agent.send("Go on.")
            assert reply.stop_reason in ("end_turn", "max_steps"), reply

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelReply]:
        if request.purpose != "reply":
            raise fails("summaries are extracts")
        assert self.perdure is not None
        shown = [*lines_of(request.system), *(line for one in request.messages for line in lines_of(one.text))]
        self.missed += sorted({*self._stood} - {*shown})
        self.seen = len({line for line in shown if not line.startswith(self.name)})
        ended = False
        for result in [result for one in request.messages for result in one.results]:
            if result.call_id == self._open_call:
                self._open_call = ""
                self._number += result.status == "success"
                self.refused += result.status != "success"
                ended = self._number == self.count or self._number % TURN == 0
        assert self.refused <= 5 * self.count, "a rewrite is refused again and again"
        self._stood = lines_of(await self._read_block())
        yield says("Done.") if ended else self._edit(_newest(request))

    def _edit(self, lines: list[str]) -> ModelReply:
        """The next line, by a tool that takes only the line, one that takes its place, or one that takes everything."""
        added, self._calls = f"{self.name}-{self._number:04}", self._calls + 1
        self._open_call = f"call-{self._calls}"
        kind = self._number % 3 if lines else 0
        if kind == 0:
            return calls("memory_insert", label=LABEL, new_string=added, call_id=self._open_call)
        if kind == 1:
            text = f"{lines[-1]}\n{added}"
            return calls("memory_replace", label=LABEL, old_string=lines[-1], new_string=text, call_id=self._open_call)
        return calls("memory_rethink", label=LABEL, new_memory="\n".join([*lines, added]), call_id=self._open_call)

    async def _read_block(self) -> str:
        assert self.perdure is not None
        agent = await self.perdure.agent(self.name)
        return (await agent.blocks.get(LABEL)).value


def _newest(request: ModelRequest) -> list[str]:
    """The lines of the block as the request shows it last."""
    for message in reversed(request.messages):
        if message.kind == "memory_delta" or message.role == "tool":
            return lines_of(message.text)
    return lines_of(request.system)


async def main(path: str, name: str, count: str) -> None:
    editor = Editor(name, int(count))
    async with await open_store(path, editor):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await editor.run()
    print(json.dumps({"missed": editor.missed, "refused": editor.refused, "seen": editor.seen}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
