"""Random histories of an agent, and what its model is sent next."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure, NothingToCompact
from perdure.context.sections.assemble import canonical
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.library.agent import AsyncAgentById
from perdure.settings import Settings
from perdure.testing import FakeClock, ScriptedModel, calls, says

MODEL = "test/scripted"
WORDS = ("Go", "Rust", "tea", "coffee", "Oslo", "Rome", "chess", "jazz", "rain", "the sea")
FORGOTTEN = "Her PIN is 84213"
EVERYTHING = ("say", "long", "edit", "tool", "memory", "system", "new_block", "detach", "compact", "wait", "answer")
"""What may happen after a snapshot that is to be restored exactly."""
BEFORE = (*EVERYTHING, "forget", "revise", "reset", "passage", "other")
"""What may happen before one."""


class MovedClock(FakeClock):
    """A clock that can be set."""

    def set(self, at: datetime) -> None:
        """Show this time."""
        self._now = at


class HeldModel(ScriptedModel):
    """A scripted model that answers while `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        (go := asyncio.Event()).set()
        self.go = go

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        """Wait, then answer."""
        await self.go.wait()
        async for part in super().respond(request):
            yield part


def pay(amount: int) -> str:
    """Pay an amount.

    Args:
        amount: How much.
    """
    return f"paid {amount}"


@dataclass
class World:
    """An open store with an agent, whose clock stands still but where something happens."""

    perdure: AsyncPerdure
    agent: AsyncAgentById
    model: HeldModel
    clock: MovedClock
    random: random.Random
    done: list[str] = field(default_factory=list)

    def _words(self, count: int) -> str:
        """Some words."""
        return " ".join(self.random.choice(WORDS) for _ in range(count))

    async def do(self, name: str) -> None:
        """Let something happen to the agent."""
        self.clock.advance(self.random.choice((5, 60, 400)))
        waits = bool(await self.agent.pending())
        if waits and name in ("say", "long", "tool", "memory", "wait", "forget", "revise", "compact", "other"):
            name = "answer"
        self.done.append(name)
        action: Callable[[], Awaitable[Any]] = getattr(self, f"_{name}")
        await action()

    async def _say(self) -> None:
        await self.agent.send(f"I like {self._words(3)}.")

    async def _long(self) -> None:
        self.model._script.append(says(self._words(150)))
        await self.agent.send(self._words(150))

    async def _memory(self) -> None:
        text = f"Likes {self._words(2)}."
        self.model._script.append(calls("core_memory_append", label="human", content=text))
        await self.agent.send("Note it.")

    async def _tool(self) -> None:
        self.model._script.append(calls("conversation_search", query=self.random.choice(WORDS)))
        await self.agent.send("Look it up.")

    async def _wait(self) -> None:
        self.model._script.append(calls("pay", amount=self.random.randrange(100)))
        await self.agent.send("Pay.")

    async def _answer(self) -> None:
        for call in await self.agent.pending():
            if self.random.random() < 0.5:
                await self.agent.approve(call.call_id)
            else:
                await self.agent.deny(call.call_id)

    async def _edit(self) -> None:
        await self.agent.blocks.update("human", f"Ann likes {self._words(2)}.")

    async def _system(self) -> None:
        await self.agent.edit({"system": f"Be kind. {self._words(2)}."})

    async def _new_block(self) -> None:
        labels = [block.label for block in await self.agent.blocks.list()]
        if "extra" not in labels:
            await self.agent.blocks.create("extra", self._words(3))

    async def _detach(self) -> None:
        labels = [block.label for block in await self.agent.blocks.list()]
        if "extra" in labels:
            await self.agent.blocks.detach("extra")

    async def _compact(self) -> None:
        try:
            await self.agent.compact()
        except NothingToCompact:
            self.done[-1] = "nothing"

    async def _forget(self) -> None:
        await self.agent.send(f"{FORGOTTEN}, and I like {self._words(1)}.")
        self.clock.advance(1)
        await self.agent.forget(FORGOTTEN)

    async def _revise(self) -> None:
        said = [one for one in await self.agent.messages() if one.role == "user"]
        if said:
            await self.agent.update_message(said[-1].id, f"No: {self._words(2)}.")

    async def _reset(self) -> None:
        await self.agent.reset()
        await self._say()

    async def _passage(self) -> None:
        await self.agent.archive(f"A passage about {self._words(2)}.")

    async def _other(self) -> None:
        made = await self.agent.create_conversation()
        await self.agent.send("Elsewhere.", conversation=made.conversation.id)


async def open_world(path: Path, seed: int, **settings: Any) -> World:
    """A store with an agent that has said something, with a window that some long messages fill."""
    clock, model = MovedClock(), HeldModel()
    chosen = replace(Settings(), model=MODEL, embedding="none", **settings)
    perdure = await AsyncPerdure.open(path, models={MODEL: model}, tools=[pay], settings=chosen, clock=clock)
    tools = ["core_memory_append", "conversation_search", "pay"]
    made = await perdure.create_agent("ann", tools=tools, settings={"context_window_tokens": 9_000, "facts": False})
    await made.require_approval("pay")
    world = World(perdure, perdure.agent_of(made.id), model, clock, random.Random(seed))
    await world.do("say")
    return world


async def next_request(world: World, agent: AsyncAgentById, at: datetime) -> bytes:
    """What the model is sent when the agent is next spoken to, or answered, at this time."""
    world.clock.set(at)
    world.model._script.clear()
    before = len(world.model.requests)
    waiting = await agent.pending()
    if waiting:
        for call in waiting:
            await agent.deny(call.call_id)
    else:
        await agent.send("What do you know?")
    return canonical(world.model.requests[before])


def without_ids(request: bytes, *agent_ids: str) -> bytes:
    """A request without what a new prefix names anew: the agent and its marker."""
    text = request.decode()
    for agent_id in agent_ids:
        text = text.replace(agent_id, "AGENT")
    return text.encode()


def without_counts(request: bytes) -> bytes:
    """A request without what it says of memory out of view, which is not in a file: the tail, and counts in a new
    opening."""
    lines = request.rstrip(b"\n").splitlines()[:-1]
    return re.sub(rb"- \d+ (messages|passages) are in", rb"- N \1 are in", b"\n".join(lines))


def without_versions(request: bytes) -> bytes:
    """A request without the numbers of versions in notices of edits: a restored value has a new one."""
    return re.sub(rb'version\\": \d+', b'version\\": N', request)
