"""The memory tools of voice agents."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.core.errors import BlockNotFound, BlockReadOnly, ToolError
from perdure.core.ids import MessageId
from perdure.core.messages import Draft, Text
from perdure.core.passages import Passage
from perdure.domain.blocks.units import NewBlock
from perdure.domain.tools.memory_tools import transcript_lines
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.support.agents import AgentInRun, agent_in_run

TRANSCRIPT = "Keep what matters.\n0. user: I moved to Rome\n1. assistant: When?\nI mean, which day?\n2. user: Monday"


async def asked_to_keep(text: str) -> AgentInRun:
    """An agent in a run that answers this text."""
    s = await agent_in_run()
    await s.begin_run()
    draft = Draft(id=MessageId(s.ids.new("message")), role="user", parts=(Text(text),))
    await s.store.write(lambda tx: tx.messages.append(s.run, [draft], [1], at=s.clock.now()))
    return s


async def passages(s: AgentInRun) -> list[Passage]:
    """What the agent's archive holds, oldest first."""

    def read(tx: Tx) -> list[Passage]:
        archives = tx.archives.list_by_agent(s.agent.id)
        return [one for archive in archives for one in tx.passages.page(archive.id, limit=10)]

    return await s.store.read(read)


async def test_what_is_known_about_the_user_is_rewritten() -> None:
    """The block `human`, and no other."""
    s = await agent_in_run(NewBlock(label="human", value="Lives in Turin"), NewBlock(label="persona", value="Kind"))
    outcome = await s.call("rethink_user_memory", new_memory="Lives in Rome")

    assert (outcome.text, (await s.block("human")).value) == ("Lives in Rome", "Lives in Rome")
    assert (await s.block("persona")).value == "Kind"
    assert (await s.call("finish_rethinking_memory")).text == "Done."


async def test_what_is_known_about_the_user_may_be_closed_or_missing() -> None:
    """As for other edits."""
    with pytest.raises(BlockReadOnly):
        await (await agent_in_run(NewBlock(label="human", read_only=True))).call("rethink_user_memory", new_memory="x")
    with pytest.raises(BlockNotFound):
        await (await agent_in_run()).call("rethink_user_memory", new_memory="x")


async def test_parts_of_the_transcript_are_stored() -> None:
    """Each is a passage: its context, and its lines as they were."""
    s = await asked_to_keep(TRANSCRIPT)
    move = {"start_index": 0, "end_index": 1, "context": "Ada moved."}
    day = {"start_index": 2, "end_index": 2, "context": ""}
    outcome = await s.call("store_memories", chunks=[move, day])

    assert outcome.text == "Stored 2 memories."
    assert {passage.text for passage in await passages(s)} == {
        "Ada moved.\n\nuser: I moved to Rome\nassistant: When?\nI mean, which day?",
        "user: Monday",
    }


async def test_parts_that_are_not_there_store_nothing() -> None:
    """Not even the parts before them."""
    s = await asked_to_keep(TRANSCRIPT)
    good, bad = ({"start_index": at, "end_index": at, "context": "x"} for at in (0, 7))

    with pytest.raises(ToolError, match="no lines 7 to 7: the transcript has 0 to 2"):
        await s.call("store_memories", chunks=[good, bad])
    assert await passages(s) == []


def test_lines_count_by_their_numbers_or_from_0() -> None:
    """Empty ones do not count."""
    assert transcript_lines("Line 7: a\n8) b\n\nc") == {7: "a", 8: "b\nc"}
    assert transcript_lines("user: a\n\nassistant: b") == {0: "user: a", 1: "assistant: b"}


async def test_history_and_archive_are_searched_at_once() -> None:
    """Each message and passage once, for all queries; without queries the newest messages of a time."""
    s = await agent_in_run()
    await s.call("archival_memory_insert", content="The walrus is called Wilma")
    await s.say("I saw a walrus by the sea", at=START - timedelta(days=2))
    await s.say("The sea was cold", at=START - timedelta(minutes=30))
    found = await s.json("search_memory", convo_keyword_queries=["walrus", "sea", " "])
    late = await s.json("search_memory", start_minutes_ago=60, end_minutes_ago=10)
    early = await s.json("search_memory", convo_keyword_queries=["sea"], end_minutes_ago=60)

    assert sorted(one["content"] for one in found["messages"]) == ["I saw a walrus by the sea", "The sea was cold"]
    assert [one["content"] for one in found["archival"]] == ["The walrus is called Wilma"]
    assert ([one["content"] for one in late["messages"]], late["archival"]) == (["The sea was cold"], [])
    assert [one["content"] for one in early["messages"]] == ["I saw a walrus by the sea"]
