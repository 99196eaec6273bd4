"""A rewrite of a whole block never removes what somebody else wrote since the model was shown the block."""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure import AsyncAgent, AsyncPerdure, ModelReply, ModelRequest
from perdure.core.errors import BlockChanged
from perdure.core.messages import ToolCall, ToolResult
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says

SETTINGS = Settings(embedding="none", facts="off")


class Editor:
    """A script that has somebody else write to the block while the model answers."""

    def __init__(self, reply: ModelReply) -> None:
        self.reply, self.agent, self.outside = reply, None, "lives in Rome"
        self._loop = asyncio.get_running_loop()
        self.pending: list[asyncio.Future[object]] = []

    def __call__(self, request: ModelRequest) -> ModelReply:
        assert self.agent is not None
        self.pending.append(self._loop.create_task(self.agent.blocks.append("human", self.outside)))
        return self.reply

    agent: AsyncAgent | None


async def answer(path: Path, *script: object, blocks: dict[str, str] | None = None) -> tuple[list[ToolResult], str]:
    """The results of the calls of a run, and what the block holds after it."""
    model = ScriptedModel(*script, says("Done."))  # type: ignore[arg-type]
    async with await AsyncPerdure.open(path / "a.db", models={"test/m": model}, settings=SETTINGS) as perdure:
        agent = await perdure.create_agent(
            "ann", model="test/m", blocks=blocks or {"human": "likes tea"}, tools=["memory_rethink", "memory_insert"]
        )
        for line in script:
            if isinstance(line, Editor):
                line.agent = agent
        reply = await agent.send("Tidy up")
        value = (await agent.blocks.get("human")).value
    return [result for message in reply.messages for result in message.results], value


def rethink(text: str, *further: ToolCall) -> ModelReply:
    return calls("memory_rethink", *further, label="human", new_memory=text)


async def test_a_rewrite_is_refused_after_an_edit_that_the_model_has_not_seen(tmp_path: Path) -> None:
    """The result shows what the block holds now, so that the model merges."""
    merged = rethink("Likes tea. Lives in Rome.")
    results, value = await answer(tmp_path, Editor(rethink("Likes tea.")), merged)

    assert [result.status for result in results] == ["error", "success"]
    assert BlockChanged.words in results[0].text
    assert results[0].text.endswith("It now holds:\nlikes tea\nlives in Rome")
    assert value == "Likes tea. Lives in Rome."


async def test_an_own_edit_between_does_not_hide_that_of_somebody_else(tmp_path: Path) -> None:
    """One answer inserts a line and rewrites the block: the rewrite was written without seeing the other's line."""
    insert = ToolCall("", "memory_insert", '{"label": "human", "new_string": "is 30"}')
    both = ModelReply(parts=(insert, *rethink("Likes tea, 30.").parts))
    results, value = await answer(tmp_path, Editor(both))

    assert [result.status for result in results] == ["success", "error"]
    assert value == "likes tea\nlives in Rome\nis 30"


async def test_own_edits_in_a_row_are_not_refused(tmp_path: Path) -> None:
    """Each result shows the model the value that its next rewrite replaces; so do two calls in one answer."""
    again = ToolCall("", "memory_rethink", '{"label": "human", "new_memory": "three"}')
    results, value = await answer(tmp_path, rethink("one"), rethink("two", again))

    assert [result.status for result in results] == ["success"] * 3
    assert value == "three"
