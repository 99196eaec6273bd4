"""Extractions that wait for their model while people edit, forget, erase, forbid, pause, delete and extract once more.

In random order. What is gone stays gone, nothing waits for ever, nothing is stored twice or dropped without a count.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.features.facts.extraction.worker import Extractions
from perdure.features.facts.values.extraction import Extraction, ReadBatch
from perdure.testing import InlineStore
from tests.features.facts.test_background import Scribe, opened, steps

ROUNDS = 500 if os.environ.get("PERDURE_FAULTS") == "full" else 10
ACTIONS = 24
FAILED_ONCE = (13, 42, 51, 57)
"""Stories in which a text became a fact while it was forgotten, behind the place that the scan had come to."""


class Held(Scribe):
    """A scribe each of whose calls waits until it is let go, and sometimes fails then."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.calls: list[asyncio.Event] = []
        self.is_free = False

    async def extract(self, batch: ReadBatch) -> Extraction:
        if not self.is_free:
            self.calls.append(call := asyncio.Event())
            await call.wait()
            if not self.is_free and self.chance.random() < 0.1:
                raise RuntimeError("down")
        return await super().extract(batch)

    def let_go(self) -> None:
        """Let one of the calls go on."""
        if self.calls:
            self.calls.pop(self.chance.randrange(len(self.calls))).set()


class Story:
    """What is said to an agent and done about it, a random action at a time. `said`: each text -> where it stands; a
    text that is gone is not among them. `gone`: texts of which nothing may be known; `erased`: that are nowhere."""

    def __init__(self, perdure: AsyncPerdure, agent: AsyncAgent, scribe: Held, path: Path) -> None:
        self.perdure, self.agent, self.scribe, self.path = perdure, agent, scribe, path
        self.chance = scribe.chance
        self.said: dict[str, tuple[str, str]] = {}
        self.gone: set[str] = set()
        self.erased: set[str] = set()
        self.ruled: set[str] = set()
        self.tasks: list[asyncio.Task[object]] = []
        self.done: list[str] = []
        self.count = 0

    async def act(self) -> None:
        """Do something."""
        kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (5, self.say),
            (2, self.keep),
            (3, self.give),
            (5, self.extract),
            (6, self.go_on),
            (3, self.edit),
            (2, self.forget),
            (1, self.erase),
            (2, self.rule),
            (1, self.pause),
            (1, self.switch),
            (2, self.delete),
        ]
        (kind,) = self.chance.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])
        self.done.append(kind.__name__)
        await kind()
        await steps()

    def word(self) -> str:
        """A new text."""
        self.count += 1
        return f"I have tangerine{self.count:02d}x{self.chance.randrange(10**6):06d}"

    def pick(self, *places: str) -> str | None:
        """A text that stands in one of these places."""
        found = [text for text, (place, _) in self.said.items() if place in places]
        return self.chance.choice(found) if found else None

    async def say(self) -> None:
        text = self.word()
        await self.agent.send(text)
        message = next(one for one in await self.agent.messages(limit=50) if one.text == text)
        self.said[text] = ("message", message.id)

    async def keep(self) -> None:
        text = self.word()
        self.said[text] = ("passage", (await self.agent.archive(text)).id)

    async def give(self) -> None:
        text = self.word()
        self.said[text] = ("given", "")
        self.tasks.append(asyncio.create_task(self.agent.facts.ingest(text)))

    async def extract(self) -> None:
        self.tasks.append(asyncio.create_task(self.agent.facts.extract()))

    async def go_on(self) -> None:
        self.scribe.let_go()

    async def edit(self) -> None:
        if (text := self.pick("message")) is not None:
            new, (_, id_) = self.word(), self.said.pop(text)
            await self.agent.update_message(id_, new)  # type: ignore[arg-type]
            self.gone.add(text)
            self.said[new] = ("message", id_)

    async def forget(self) -> None:
        if (text := self.pick("message", "passage", "given")) is not None:
            del self.said[text]
            await self.beside(self.agent.forget(text))
            self.gone.add(text)

    async def erase(self) -> None:
        if (text := self.pick("message", "passage", "given")) is not None:
            del self.said[text]
            await self.beside(self.agent.forget(text, erase=True))
            self.gone.add(text)
            self.erased.add(text)
            self.look()

    async def beside(self, work: Awaitable[object]) -> None:
        """Let some of the calls go on while something is done."""
        doing = asyncio.ensure_future(work)
        while not doing.done():
            if self.chance.random() < 0.2:
                self.scribe.let_go()
            await asyncio.sleep(0)
        await doing

    async def rule(self) -> None:
        text = self.pick("message", "passage", "given")
        if text is not None and not await self.known(text):
            await self.agent.facts.add_rule(text=text)
            self.ruled.add(text)

    async def pause(self) -> None:
        await self.agent.facts.pause()

    async def switch(self) -> None:
        mode = self.chance.choice(["off", "on", "ask"])
        await self.agent.update(settings={"facts": {"capture": mode, "batch_turns": self.chance.choice([2, 8])}})

    async def delete(self) -> None:
        if (text := self.pick("passage")) is not None:
            _, id_ = self.said.pop(text)
            await self.agent.delete_passage(id_)  # type: ignore[arg-type]
            self.gone.add(text)

    async def known(self, text: str) -> list[str]:
        """The facts with a text that are believed."""
        found = await self.agent.facts.list(limit=200, states=("active", "faded", "proposed", "archived"))
        return [hit.fact.text for hit in found if text in hit.fact.text]

    def look(self) -> None:
        """Look for what was erased, in all bytes of the store."""
        stored = b"".join(one.read_bytes() for one in self.path.parent.glob(f"{self.path.name}*")).lower()
        for text in self.erased:
            assert text.split()[-1].encode() not in stored, (text, self.done)

    async def end(self) -> None:
        """Let everything go on, and look what is there."""
        self.scribe.is_free = True
        await self.agent.facts.resume()
        await self.agent.update(settings={"facts": {"capture": "on"}})
        while self.scribe.calls:
            self.scribe.let_go()
        async with asyncio.timeout(20):
            await asyncio.gather(*self.tasks, return_exceptions=True)
        for _ in range(8):
            await self.agent.facts.extract()
        read = len(self.scribe.batches)
        assert list(await self.agent.facts.extract()) == []
        assert len(self.scribe.batches) == read, self.done

        counts = await self.agent.facts.counts()
        assert counts.waiting == 0, self.done
        for text in self.gone:
            assert await self.known(text) == [], (text, self.done)
        found = {text: await self.known(text) for text in self.said}
        assert [len(facts) for text, facts in found.items()] == [text not in self.ruled for text in found], (
            found,
            self.ruled,
            self.done,
        )
        assert sum(counts.dropped.values()) >= len(self.ruled & found.keys()), self.done
        self.look()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
async def test_random_changes_while_models_are_asked(part: int, tmp_path: Path) -> None:
    for number in (*range(part, ROUNDS, 10), *FAILED_ONCE[part : part + 1]):
        chance = random.Random(number)
        path = tmp_path / f"{number}.db"
        async with opened(scribe := Held(chance), store=path) as perdure:
            perdure.app.service(Extractions).ports.waiting.wake = None
            store = perdure.app.ports.store
            assert isinstance(store, InlineStore)
            store._fault = lambda point: asyncio.sleep(0)  # others may go on before and after each transaction
            agent = await perdure.create_agent("x", settings={"facts": {"batch_turns": 2}})
            story = Story(perdure, agent, scribe, path)
            for _ in range(ACTIONS):
                await story.act()
            await story.end()
