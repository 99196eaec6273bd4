"""What fills the window: the parts are those of the request, and sum to the window."""

from __future__ import annotations

from pathlib import Path

from perdure.context.overview import overview
from perdure.context.tokens import ScriptTokenCounter
from perdure.testing import says
from tests.library.opened import open_async

COUNTER = ScriptTokenCounter()


def numbers(window_tokens: int, message_tokens: int = 100) -> tuple[dict[str, int], int, int, int]:
    """(part -> tokens, reserve, free, over)."""
    blocks = "<memory_blocks>\n<human>\nAda</human>\n</memory_blocks>"
    made = overview(
        model="a/b",
        window_tokens=window_tokens,
        reserve_tokens=8_000,
        system=f"You remember.\n\n{blocks}\n\n<memory_metadata></memory_metadata>",
        tools=({"name": "t"},),
        message_tokens=message_tokens,
        status="now",
        sent=True,
        counter=COUNTER,
    )
    return {part.name: part.tokens for part in made.parts}, made.reserve_tokens, made.free_tokens, made.over_tokens


def test_the_parts_the_reserve_and_the_rest_are_the_window() -> None:
    """The memory section is counted apart from the prompt around it; a small window keeps a quarter free."""
    parts, reserve, free, over = numbers(1_000)

    assert list(parts) == ["system prompt", "memory blocks", "tools", "messages", "status"]
    assert all(parts.values())
    assert parts["memory blocks"] == COUNTER.count("<memory_blocks>\n<human>\nAda</human>\n</memory_blocks>")
    assert reserve == 250
    assert sum(parts.values()) + reserve + free == 1_000
    assert over == 0


def test_more_than_fits_is_said_to_be() -> None:
    """Nothing is free then, and how much has to go is known."""
    parts, reserve, free, over = numbers(1_000, message_tokens=2_000)

    assert free == 0
    assert over == sum(parts.values()) + reserve - 1_000


async def test_an_agent_s_context_is_that_of_its_next_request(tmp_path: Path) -> None:
    """Before the first message what it will be sent with; then the prefix as it was counted, and the rows behind it."""
    async with await open_async(tmp_path / "agents.db", says("Hello.")) as perdure:
        agent = await perdure.create_agent("Ada", settings={"context_window_tokens": 16_000})
        before = await agent.context()
        await agent.send("hello")
        after = await agent.context()
        await agent.blocks.update("human", "Name: Ada")

        assert (before.sent, before.window_tokens, before.reserve_tokens) == (False, 16_000, 4_000)
        assert after.sent
        prefix = await perdure.app.store.read(lambda tx: tx.prefixes.at(agent.id, 0))
        counted = {part.name: part.tokens for part in after.parts}
        assert counted["system prompt"] + counted["memory blocks"] + counted["tools"] == prefix.tokens
        assert counted["messages"] > 0
        assert {part.name: part.tokens for part in before.parts}["messages"] == 0
