"""Where one memory or answer comes from: by whole and short ids, by words, and for lines that changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from perdure import AsyncPerdure, InvalidInput, NotFound
from perdure.core.forgetting.origins import origin_shape
from perdure.core.ids import id_beginning, id_in_run
from perdure.core.messages import ToolCall
from perdure.core.text.line_diff import find_line_before
from perdure.features.origins.origin_values import AnswerOrigin, MemoryOrigin
from perdure.library.agent import AsyncAgent
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, SequentialIds, calls, says

MODEL = "test/scripted"


@pytest.fixture
async def library() -> AsyncIterator[AsyncPerdure]:
    """An agent that notes tea, then changes it to coffee, and stores two passages in one answer."""
    note = ToolCall("second", "archival_memory_insert", '{"content": "Her cat is Tom."}')
    model = ScriptedModel(
        calls("memory_insert", label="human", new_string="Likes green tea."),
        says("Noted."),
        calls("memory_replace", label="human", old_string="green tea", new_string="green coffee"),
        says("Changed."),
        calls("archival_memory_insert", note, call_id="first", content="Her dog is Rex."),
        says("Stored."),
    )
    store = InlineStore()
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(store=store, models={MODEL: model}, settings=settings) as library:
        agent = await library.create_agent("Ada")
        for text in ("I like green tea", "No, green coffee", "I have two pets"):
            await agent.send(text)
        yield library


@pytest.fixture
async def agent(library: AsyncPerdure) -> AsyncAgent:
    return await library.agent("Ada")


async def memory_of(agent: AsyncAgent, of: str) -> MemoryOrigin:
    origin = await agent.why(of)
    assert isinstance(origin, MemoryOrigin)
    return origin


async def test_a_line_shows_its_changes_with_the_messages_behind_them(agent: AsyncAgent) -> None:
    origin = await memory_of(agent, "green coffee")

    assert (origin.kind, origin.label, origin.text) == ("line", "human", "Likes green coffee.")
    assert [(write.text, write.tool, write.messages[0].text) for write in origin.writes] == [
        ("Likes green tea.", "memory_insert", "I like green tea"),
        ("Likes green coffee.", "memory_replace", "No, green coffee"),
    ]


async def test_a_line_that_is_gone_is_found_by_its_words(agent: AsyncAgent) -> None:
    await agent.blocks.update("human", value="")
    origin = await memory_of(agent, "green coffee")

    assert origin.line is None
    assert [(write.text, write.author) for write in origin.writes][1:] == [
        ("Likes green coffee.", "agent"),
        (None, "user"),
    ]


async def test_each_of_two_calls_in_one_answer_has_its_own_passage(agent: AsyncAgent) -> None:
    dog, cat = await memory_of(agent, "Rex"), await memory_of(agent, "Tom")

    assert [one.writes[0].call_id for one in (dog, cat)] == ["first", "second"]
    assert dog.writes[0].run_id == cat.writes[0].run_id
    assert dog.id != cat.id == (await memory_of(agent, cat.id)).id


async def test_words_of_several_memories_are_refused_with_their_ids(agent: AsyncAgent) -> None:
    with pytest.raises(InvalidInput, match=r"several memories hold 'Her': passage-\S+, passage-"):
        await agent.why("Her")
    with pytest.raises(NotFound, match="walrus"):
        await agent.why("walrus")


async def test_the_beginnings_of_ids_are_enough(agent: AsyncAgent) -> None:
    """Of runs, steps, messages of both sides, passages and blocks; a message of the user means its answer."""
    (told, _, _, answer, *_) = await agent.messages()
    whole = await agent.why(answer.id)
    assert isinstance(whole, AnswerOrigin) and whole.text == "Noted."
    block, passage = await agent.blocks.get("human"), await memory_of(agent, "Rex")
    for id_ in (answer.id, told.id, whole.run_id, whole.step_id):
        assert await agent.why(id_[: len(id_.partition("-")[0]) + 9]) == whole
    assert (await memory_of(agent, block.id[:14])).id == block.id
    assert (await memory_of(agent, f"{block.id[:14]}:1")).text == "Likes green coffee."
    assert (await memory_of(agent, passage.id[:16])).id == passage.id


async def test_a_beginning_of_several_ids_is_refused() -> None:
    """With the ids that there are; one that is no beginning of any is not found."""
    settings = Settings(model=MODEL, embedding="none")
    models = {MODEL: ScriptedModel()}
    async with await AsyncPerdure.open(
        store=InlineStore(), models=models, settings=settings, ids=SequentialIds()
    ) as library:
        agent = await library.create_agent("Ada")
        runs = [(await agent.send(text)).run_id for text in ("one", "two")]

        with pytest.raises(InvalidInput, match=f"several ids: {runs[0]}, {runs[1]}; give more"):
            await agent.why("run-00000000")
        with pytest.raises(NotFound, match="run 'run-ffffffff' not found"):
            await agent.why("run-ffffffff")


async def test_another_agents_memory_is_not_found(library: AsyncPerdure, agent: AsyncAgent) -> None:
    other = await library.create_agent("Ben")
    passage = await memory_of(agent, "Rex")
    for id_ in ((await agent.blocks.get("human")).id, passage.id, passage.writes[0].run_id):
        with pytest.raises(NotFound):
            await other.why(str(id_))


async def test_an_answer_lists_blocks_and_changes_in_its_request(agent: AsyncAgent) -> None:
    answer = next(message for message in await agent.messages() if message.text == "Changed.")
    origin = await agent.why(answer.id)
    assert isinstance(origin, AnswerOrigin)
    human = [block for block in origin.blocks if block.label == "human"]

    assert [(block.version, block.text, block.change) for block in human] == [
        (0, "", None),
        (1, "Likes green tea.", "edited"),
        (2, "Likes green coffee.", "edited"),
    ]
    assert origin_shape(origin)["blocks"][-1]["text"] == "Likes green coffee."
    assert "request" not in origin_shape(origin)


async def test_imported_messages_have_no_answer(agent: AsyncAgent) -> None:
    await agent.import_messages([("user", None, "long ago", datetime(2020, 1, 1, tzinfo=UTC))])
    (old,) = [message for message in await agent.messages() if message.text == "long ago"]

    with pytest.raises(NotFound, match="imported"):
        await agent.why(old.id)


def test_an_id_of_a_run_is_built_from_its_beginning() -> None:
    run_id = "run-12345678-1234-4234-8234-123456789000"
    for part in ("input", "step", "answer"):
        whole = id_in_run(run_id, part, 7, None)  # type: ignore[arg-type]
        start = whole[: len(whole.partition("-")[0]) + 4]

        assert id_beginning(start, run_id) == whole  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "line", "found"),
    [
        ("a\nb\nc", "a\nx\nb\nc", 2, 1),
        ("a\nb\nc", "a\nx\nb\nc", 1, None),
        ("a\nlikes tea\nc", "a\nlikes coffee\nc", 1, 1),
        ("a\nlikes tea\nc", "a\nhas a dog\nc", 1, None),
        ("", "first", 0, None),
        ("a\nb", "b\na", 0, 1),
    ],
)
def test_a_line_is_followed_through_an_edit(before: str, after: str, line: int, found: int | None) -> None:
    assert find_line_before(before, after, line) == found


async def test_the_blocks_of_an_answer_stand_in_the_order_of_the_agents_blocks(library: AsyncPerdure) -> None:
    agent = await library.create_agent("Bea", blocks=dict.fromkeys(("yak", "zebu", "ape", "wolf", "bat"), ""))
    origin = await agent.why((await agent.send("Hello")).run_id)

    assert isinstance(origin, AnswerOrigin)
    assert [block.label for block in origin.blocks] == [block.label for block in await agent.blocks.list()]


async def test_why_lists_later_corrections_of_a_passage(agent: AsyncAgent) -> None:
    """The first write with what it said then, and each correction that is not undone."""
    passage = await memory_of(agent, "Rex")
    await agent.update_passage(passage.id, text="Rex is a cat.")  # type: ignore[arg-type]
    await agent.update_passage(passage.id, text="Rex is a parrot.")  # type: ignore[arg-type]

    why = await memory_of(agent, "Rex is")

    assert [write.text for write in why.writes] == [passage.text, "Rex is a cat.", "Rex is a parrot."]
    assert [write.author_id for write in why.writes[1:]] == ["correction 1", "correction 2"]
    await agent.undo()
    assert [write.text for write in (await memory_of(agent, "Rex is")).writes] == [passage.text, "Rex is a cat."]
