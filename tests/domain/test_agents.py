"""Making an agent: all of it in one transaction, or nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from perdure.core.blocks import DEFAULT_LIMIT_CHARS, BlockFilter
from perdure.core.errors import AlreadyExists, BlockLimitExceeded, InvalidInput, NameInvalid, NotFound
from perdure.core.ids import BlockId
from perdure.core.tools.engine_specs import DEFAULT_TOOLS, MEMORY_TOOL_SPECS
from perdure.domain.agents.units import NewAgent, create_agent, update_agent
from perdure.domain.blocks.units import DEFAULT_DESCRIPTIONS, NewBlock, create_block
from perdure.domain.conversations.units import update_conversation
from perdure.domain.tools.units import put_tools
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, SequentialIds
from perdure.testing.clock import START
from tests.support.agents import USER


async def a_store() -> tuple[InlineStore, SequentialIds]:
    """A store with the built-in tools."""
    store, ids = InlineStore(), SequentialIds()
    await store.write(put_tools, tuple(MEMORY_TOOL_SPECS.values()), ids=ids, at=START)
    return store, ids


async def test_an_agent_comes_with_conversation_blocks_and_tools() -> None:
    """Its default conversation, its blocks in their order, shared ones after them, and the tools of its type."""
    store, ids = await a_store()
    shared = await store.write(
        create_block, BlockId(ids.new("block")), NewBlock(label="team", value="red"), author=USER, at=START
    )
    new = NewAgent(
        name="Ada's agent",
        model="test/model",
        blocks=(NewBlock(label="persona", value="I am Ada."), NewBlock(label="human")),
        block_ids=(shared.id,),
    )
    agent = await store.write(create_agent, new, ids=ids, author=USER, at=START)

    def look(tx: Tx) -> dict[str, Any]:
        return {
            "conversations": [conversation.seq for conversation in tx.conversations.list(agent.id)],
            "blocks": [(block.label, block.value) for block in tx.blocks.list_by_agent(agent.id)],
            "tools": [tool.spec.name for tool in tx.tools.list_by_agent(agent.id)],
            "agent": tx.agents.get(agent.id),
        }

    assert await store.read(look) == {
        "conversations": [0],
        "blocks": [("persona", "I am Ada."), ("human", ""), ("team", "red")],
        "tools": ["conversation_search", "memory_insert", "memory_replace"],
        "agent": agent,
    }
    assert agent.agent_type == "letta_v1_agent"


async def test_blocks_have_letta_s_limit_and_known_descriptions() -> None:
    """5,000 characters, and what a persona or human block is for."""
    store, ids = await a_store()
    new = NewAgent(
        name="a",
        model="m",
        blocks=(NewBlock(label="human"), NewBlock(label="x"), NewBlock(label="persona", description="")),
    )
    agent = await store.write(create_agent, new, ids=ids, author=USER, at=START)
    human, other, persona = await store.read(lambda tx: tx.blocks.list_by_agent(agent.id))

    assert {block.limit_chars for block in (human, other, persona)} == {DEFAULT_LIMIT_CHARS} == {5_000}
    assert (human.description, other.description, persona.description) == (DEFAULT_DESCRIPTIONS["human"], None, "")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": ""}, NameInvalid),
        ({"name": "   "}, NameInvalid),
        ({"name": "a/b"}, NameInvalid),
        ({"name": "x" * 201}, NameInvalid),
        ({"timezone": "Europe/Atlantis"}, InvalidInput),
        ({"timezone": "../../etc/passwd"}, InvalidInput),
        ({"blocks": (NewBlock(label="my notes"),)}, InvalidInput),
        ({"blocks": (NewBlock(label="a", value="xxx", limit_chars=2),)}, BlockLimitExceeded),
        ({"blocks": (NewBlock(label="a"), NewBlock(label="a"))}, AlreadyExists),
        ({"block_ids": (BlockId("block-absent"),)}, NotFound),
        ({"tools": ("conversation_search", "absent")}, NotFound),
    ],
)
async def test_an_agent_that_cannot_be_made_leaves_nothing(changes: dict[str, Any], error: type[Exception]) -> None:
    """Neither the agent, nor its conversation, nor the blocks that were fine."""
    store, ids = await a_store()
    new = NewAgent(**{"name": "ada", "model": "m", "blocks": (NewBlock(label="fine"),)} | changes)
    with pytest.raises(error):
        await store.write(create_agent, new, ids=ids, author=USER, at=START)

    assert await store.read(lambda tx: (list(tx.agents.list()), list(tx.blocks.page(where=BlockFilter())))) == ([], [])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"compaction": "all"}, "compaction is 'all': give an object"),
        ({"compaction": {"mode": "some"}}, "compaction.mode is 'some': give one of all, sliding_window"),
        ({"compaction": {"evict_share": 3}}, "compaction.evict_share is 3: give a number from 0 to 1"),
        ({"compaction": {"clip_chars": -1}}, "compaction.clip_chars is -1"),
        ({"compaction": {"model": 5}}, "compaction.model is 5: give the handle of a model"),
        ({"compaction": {"sliding_window_percentage": 0.3}}, "no field sliding_window_percentage"),
        ({"compaction_settings": {"mode": "all"}}, "is it 'compaction'?"),
    ],
)
async def test_compaction_settings_that_no_run_could_use_are_refused(settings: dict[str, Any], words: str) -> None:
    """When they are set, not when the window is full."""
    store, ids = await a_store()
    with pytest.raises(InvalidInput, match=re.escape(words)):
        await store.write(
            create_agent, NewAgent(name="a", model="m", settings=settings), ids=ids, author=USER, at=START
        )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": "hot"}, "temperature is 'hot': give a number from 0 to 2"),
        ({"temperature": 2.5}, "temperature is 2.5"),
        ({"temperature": True}, "temperature is True"),
        ({"top_p": [0.5]}, "top_p is [0.5]"),
        ({"max_output_tokens": 0.5}, "max_output_tokens is 0.5: give a whole number"),
        ({"max_reasoning_tokens": -1}, "max_reasoning_tokens is -1"),
        ({"top_logprobs": "5"}, "top_logprobs is '5'"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls is 'no': give True or False"),
        ({"logprobs": 1}, "logprobs is 1: give True or False"),
        ({"message_buffer_autoclear": "off"}, "message_buffer_autoclear is 'off': give True or False"),
        ({"response_format": "json"}, "response_format is 'json': give names with JSON values"),
        ({"extra": ["seed", 3]}, "extra is ['seed', 3]"),
        ({"reasoning_effort": "most"}, "reasoning_effort is 'most': give one of none, minimal"),
        ({"reasoning_effort": ["low"]}, "reasoning_effort is ['low']"),
        ({"tool_choice": {"a": 1}}, "tool_choice is {'a': 1}: give auto"),
        ({"tool_choice": []}, "tool_choice is []"),
    ],
)
async def test_options_that_no_model_takes_are_refused(settings: dict[str, Any], words: str) -> None:
    """Of an agent when it is made and changed, and of a conversation; what is stored already stops no other change."""
    store, ids = await a_store()
    with pytest.raises(InvalidInput, match=re.escape(words)):
        await store.write(
            create_agent, NewAgent(name="a", model="m", settings=settings), ids=ids, author=USER, at=START
        )
    agent = await store.write(create_agent, NewAgent(name="a", model="m"), ids=ids, author=USER, at=START)
    with pytest.raises(InvalidInput, match=re.escape(words)):
        await store.write(update_agent, agent.id, {"settings": settings}, author=USER, at=START)
    conversation = await store.read(lambda tx: tx.conversations.get_by_seq(agent.id, 0))
    if "message_buffer_autoclear" not in settings:
        with pytest.raises(InvalidInput, match=re.escape(words)):
            await store.write(update_conversation, conversation.id, {"options": settings}, at=START)
    await store.write(lambda tx: tx.agents.put(replace(agent, settings=settings)))
    renamed = await store.write(update_agent, agent.id, {"description": "x"}, author=USER, at=START)

    assert renamed.settings == settings


async def test_options_that_models_take_are_kept() -> None:
    """Without a value an option is the provider's."""
    options = {
        "temperature": 0,
        "top_p": 0.5,
        "max_output_tokens": 9,
        "parallel_tool_calls": False,
        "tool_choice": ["a"],
    }
    options |= {"reasoning_effort": "low", "response_format": {"type": "json_object"}, "max_reasoning_tokens": None}
    store, ids = await a_store()
    new = NewAgent(name="a", model="m", settings=options)
    agent = await store.write(create_agent, new, ids=ids, author=USER, at=START)

    assert agent.settings == options


@pytest.mark.parametrize("name", ["Ada", "Ada's helper-2_b", "艾达", "x" * 200])
async def test_names_people_use_are_names(name: str) -> None:
    """Letters of any script, digits, spaces, apostrophes, hyphens and underscores."""
    store, ids = await a_store()
    agent = await store.write(create_agent, NewAgent(name=name, model="m"), ids=ids, author=USER, at=START)

    assert agent.name == name


async def test_tools_that_have_not_changed_are_left_alone() -> None:
    """Putting the built-in tools at every start changes nothing, for tools and agents."""
    store, ids = await a_store()
    agent = await store.write(create_agent, NewAgent(name="a", model="m"), ids=ids, author=USER, at=START)
    before = await store.read(lambda tx: list(tx.tools.list()))
    await store.write(put_tools, tuple(MEMORY_TOOL_SPECS.values()), ids=ids, at=START)

    assert await store.read(lambda tx: list(tx.tools.list())) == before
    assert await store.read(lambda tx: tx.agents.get(agent.id)) == agent


def test_the_built_in_tools_describe_themselves() -> None:
    """Each has a description and a closed schema, whose required arguments exist and are all described."""
    for name, spec in MEMORY_TOOL_SPECS.items():
        schema = spec.parameters

        assert spec.name == name
        assert spec.kind == "memory"
        assert len(spec.description) > 20
        assert (schema["type"], schema["additionalProperties"]) == ("object", False)
        assert set(schema["required"]) <= set(schema["properties"])
        assert all(argument["description"] for argument in schema["properties"].values())


def test_default_tools_are_built_in() -> None:
    """The tools of Letta's v1 agents, by its names."""
    assert DEFAULT_TOOLS["letta_v1_agent"] == ("conversation_search", "memory_insert", "memory_replace")
    assert set(DEFAULT_TOOLS["letta_v1_agent"]) <= set(MEMORY_TOOL_SPECS)
