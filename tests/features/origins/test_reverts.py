"""The law of reverts: what came from one source goes, and what others wrote stays."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import AsyncPerdure
from perdure.core.blocks import Author
from perdure.core.sources import Source, WriteSource
from perdure.domain.archives.passages import NewPassage, insert_passage, own_archive
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel
from tests.support.library import MODEL

WRITERS = ("web:a", "web:b", "user")

writes = st.lists(
    st.tuples(st.sampled_from(WRITERS), st.sampled_from(["top", "end", "passage"])), min_size=1, max_size=8
)


@pytest.mark.slow
@given(writes)
@settings(max_examples=25, deadline=None)
def test_a_revert_of_a_source_leaves_the_writes_of_others(steps: list[tuple[str, str]]) -> None:
    """In blocks and archives, in whatever order they wrote; undoing it brings everything back."""

    asyncio.run(_check(steps))


async def _check(steps: list[tuple[str, str]]) -> None:
    config = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: ScriptedModel()}, settings=config
    ) as perdure:
        agent = await perdure.create_agent("ada", human="")
        ports = perdure.app.ports

        def write(tx: Tx, writer: str, place: str, text: str) -> None:
            sources: tuple[WriteSource, ...] = ()
            if writer != "user":
                sources = (WriteSource(Source("web", writer.partition(":")[2])),)
            at = ports.clock.now()
            if place == "passage":
                archive = own_archive(tx, agent.id, ports.ids.new("archive"), at=at)  # type: ignore[arg-type]
                insert_passage(tx, archive.id, NewPassage(text=text, sources=sources), ids=ports.ids, at=at)
                return
            block = tx.blocks.find(agent.id, "human")
            assert block is not None
            lines = block.value.split("\n") if block.value else []
            value = "\n".join([text, *lines] if place == "top" else [*lines, text])
            author = Author(kind="agent", id=agent.id, agent_id=agent.id, sources=sources)
            tx.blocks.put(replace(block, value=value), expected=block.version, author=author, at=at)

        for number, (writer, place) in enumerate(steps):
            await ports.store.write(write, writer, place, f"{number} of {writer}")

        async def texts() -> list[str]:
            block = (await agent.blocks.get("human")).value
            return sorted([*filter(None, block.split("\n")), *(one.text for one in await agent.passages())])

        before = await texts()
        result: Any = await agent.sources.revert("web:a")

        assert [*result.conflicts] == []
        assert await texts() == [text for text in before if not text.endswith("web:a")]
        without = await texts()
        if result.correction is not None:
            await agent.undo(result.correction)
        assert await texts() == before
        await agent.sources.revert("web:a")  # it counts as written again
        assert await texts() == without
