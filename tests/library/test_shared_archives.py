"""Agents that share an archive: what one stores the other finds with its next search, and is told how much there is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from perdure import AsyncAgent, AsyncPerdure, ModelReply, ModelRequest
from perdure.core.models import Model
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says


@dataclass
class Searching:
    """A model that searches in each of its steps, and before each step the other agent stores a passage."""

    steps: int
    other: AsyncAgent | None = None
    counts: list[int] = field(default_factory=list)
    """How many passages each request told of."""
    found: list[int] = field(default_factory=list)

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelReply]:
        assert self.other is not None
        self.counts.append(passages_in(request))
        if request.messages and request.messages[-1].role == "tool":
            self.found.append(request.messages[-1].text.count("tea house"))
        number = len(self.counts)
        await self.other.send(f"The tea house {number} is in Turin.")
        yield calls("archival_memory_search", query="tea house") if number < self.steps else says("Found.")


def passages_in(request: ModelRequest) -> int:
    """How many passages the status of a request names."""
    return int(json.loads(request.tail)["archival_passages"])


async def test_another_agents_passage_is_found_by_the_next_search(tmp_path: Path) -> None:
    """Within one run too, and the count in each request is that of the moment."""
    searching = Searching(5)
    storing = ScriptedModel(otherwise=stores)
    models: dict[str, Model] = {"test/ann": searching, "test/bob": storing}
    settings = replace(Settings(), embedding="none")
    async with await AsyncPerdure.open(tmp_path / "agents.db", models=models, settings=settings) as perdure:
        shared = await perdure.archives.create("shared")
        ann = await perdure.create_agent("ann", model="test/ann")
        searching.other = await perdure.create_agent("bob", model="test/bob")
        for agent in (ann, searching.other):
            await agent.archives.attach(shared.id)
        await ann.send("Where is the tea house?")
        await ann.send("And now?")

    assert searching.counts == [0, 1, 2, 3, 4, 5]
    assert searching.found == [1, 2, 3, 4]


def stores(request: ModelRequest) -> ModelReply:
    """Stores what the agent is told."""
    if request.messages[-1].role == "tool":
        return says("Stored.")
    text = next(one.text for one in reversed(request.messages) if one.role == "user")
    return calls("archival_memory_insert", content=text)
