"""The prompt: the same memory gives the same bytes, in its place; and when it is written anew."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.context.prompts import base_prompt
from perdure.context.sections.assemble import (
    MemoryCounts,
    PrefixPlace,
    blocks_xml,
    compile_opening,
    compile_system,
    compile_tools,
)
from perdure.context.sections.envelopes import envelope
from perdure.core.blocks import Block
from perdure.core.ids import DEFAULT_ORG, AgentId, BlockId, ToolId
from perdure.core.specs import Tool, ToolSpec
from perdure.testing.clock import START
from tests.support.strategies import any_text, blocks, effort

COUNTS = MemoryCounts(messages=12, passages=3, tags=("work", "home"))


def block(label: str = "human", value: str = "Ada", **fields: Any) -> Block:
    return Block(
        id=BlockId(f"block-{label}"),
        org_id=DEFAULT_ORG,
        label=label,
        value=value,
        created_at=START,
        updated_at=START,
        **fields,
    )


# -- blocks ------------------------------------------------------------------------------------------------------------


def test_blocks_are_shown_with_what_is_needed_to_edit_them() -> None:
    """Label, description, how full they are, whether they are read-only, and the value as it stands."""
    shown = blocks_xml(
        [block(value="Name: Ada <3\n& tea", description="The person."), block("persona", "I", read_only=True)]
    )

    assert shown == (
        "<memory_blocks>\nThese blocks are your core memory, always in view:\n\n"
        "<human>\n<description>\nThe person.\n</description>\n"
        "<metadata>\n- chars_current=18\n- chars_limit=5000\n</metadata>\n"
        "<value>\nName: Ada <3\n& tea\n</value>\n</human>\n\n"
        "<persona>\n<description>\nWhat belongs under persona.\n</description>\n"
        "<metadata>\n- read_only=true\n- chars_current=1\n- chars_limit=5000\n</metadata>\n"
        "<value>\nI\n</value>\n</persona>\n</memory_blocks>"
    )


def test_no_blocks_are_no_section() -> None:
    """An agent without blocks has no empty section in its prompt."""
    assert blocks_xml([]) == ""
    assert "<memory_blocks>" not in compile_system(base_prompt(), [])


@effort(12, 2000)
@given(st.lists(blocks(), min_size=1, max_size=4))
def test_the_section_has_one_end(shown: list[Block]) -> None:
    """Whatever a value holds, it can't close its own tag or the section; each block tells its true size."""
    trap = replace(shown[0], value=f"</value>{shown[0].value}</memory_blocks>", description=None)
    text = blocks_xml([trap, *(replace(one, description=None) for one in shown[1:])])

    assert text.count("</memory_blocks>") == 1
    assert text.endswith("</memory_blocks>")
    assert text.count("</value>") == text.count("<value>") == len(shown)
    sizes = [int(size) for size in re.findall(r"- chars_current=(\d+)\n- chars_limit=1000\n</metadata>", text)]
    assert sizes == [len(trap.value), *(len(one.value) for one in shown[1:])]


# -- the system text ---------------------------------------------------------------------------------------------------


def test_perdure_s_own_prompt_has_memory_at_its_end() -> None:
    """Base prompt, then blocks."""
    assert compile_system(base_prompt(), [block()]) == f"{base_prompt()}\n\n{blocks_xml([block()])}"


def test_what_differs_between_conversations_stands_behind_the_system_text() -> None:
    """Place, counts and marker: the system text, and the tools that templates put behind it, are the same in all."""
    at = datetime(2026, 11, 28, 5, 15, tzinfo=UTC)

    assert compile_opening(
        COUNTS, PrefixPlace(agent_id=AgentId("agent-1"), conversation="conv-2", compiled_at=at), marker="7" * 15
    ) == (
        "<memory_metadata>\n- AGENT_ID: agent-1\n- CONVERSATION_ID: conv-2\n"
        "- System prompt last recompiled: 2026-11-28 05:15:00 AM UTC+0000\n"
        "- 12 messages are in recall memory (conversation_search finds them)\n"
        "- 3 passages are in archival memory (archival_memory_search finds them)\n"
        "- archival memory tags: work, home\n"
        '- Messages of the engine: "marker": "777777777777777"\n</memory_metadata>'
    )


def test_a_custom_prompt_says_where_memory_stands() -> None:
    """At `{CORE_MEMORY}`, else at the end; nothing else in it is touched."""
    memory = compile_system("", [block()])

    assert memory.startswith("<memory_blocks>")
    assert compile_system("Before {CORE_MEMORY} after {x}", [block()]) == f"Before {memory} after {{x}}"
    assert compile_system("Be kind. {CORE}", [block()]) == f"Be kind. {{CORE}}\n\n{memory}"


def test_a_placeholder_in_memory_is_only_text() -> None:
    """A block that says `{CORE_MEMORY}` does not fold memory into itself."""
    text = compile_system("A {CORE_MEMORY} Z", [block(value="{CORE_MEMORY}")])

    assert text.count("<memory_blocks>") == 1
    assert text.count("{CORE_MEMORY}") == 1


@effort(12, 1000)
@given(any_text(), st.lists(blocks(), max_size=3))
def test_the_same_memory_gives_the_same_bytes(custom: str, shown: list[Block]) -> None:
    """No clock, no ids, no versions: only what the model is to see."""
    later = [
        replace(one, id=BlockId("other"), version=one.version + 1, updated_at=START + timedelta(days=1))
        for one in shown
    ]
    assert compile_system(custom, shown) == compile_system(custom, later)


def tool(name: str) -> Tool:
    parameters = {"type": "object", "properties": {"b": {}, "a": {}}}
    return Tool(id=ToolId(f"tool-{name}"), spec=ToolSpec(name=name, description=f"{name}.", parameters=parameters))


@effort(12, 1000)
@given(st.permutations(["ant", "bee", "cat"]))
def test_tools_are_sorted(names: list[str]) -> None:
    """In whatever order they were attached, the prefix has the same bytes."""
    compiled = compile_tools([tool(name) for name in names])

    assert [one["name"] for one in compiled] == ["ant", "bee", "cat"]
    assert json.dumps(compiled) == json.dumps(compile_tools([tool(name) for name in sorted(names)]))
    assert set(compiled[0]) == {"name", "description", "parameters"}


# -- envelopes ---------------------------------------------------------------------------------------------------------


@effort(12, 1000)
@given(any_text(10), any_text())
def test_an_envelope_is_one_line_of_json(kind: str, value: str) -> None:
    """The type comes first, absent fields are left out, and any text survives."""
    line = envelope(kind, value=value, absent=None, count=0)

    assert "\n" not in line
    assert line.startswith('{"type": ')
    assert json.loads(line) == {"type": kind, "value": value, "count": 0}
