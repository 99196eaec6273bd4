"""Memory edits from outside, as a log is told of them."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from perdure.context.sections.envelopes import memory_deltas, versions_of
from perdure.core.blocks import Block
from perdure.core.ids import BlockId
from tests.support.strategies import blocks, effort

AGENT_BLOCKS = st.lists(blocks(), max_size=4, unique_by=(lambda block: block.id, lambda block: block.label))


@st.composite
def edits(draw: st.DrawFn) -> tuple[list[Block], list[Block]]:
    """An agent's blocks before and after some were edited, attached or detached."""
    before = draw(AGENT_BLOCKS)
    kept = [block for block in before if draw(st.booleans())]
    after = [
        replace(block, value=f"{block.value}!", version=block.version + 1) if draw(st.booleans()) else block
        for block in kept
    ]
    new = [
        block
        for block in draw(AGENT_BLOCKS)
        if block.id not in {one.id for one in before} and block.label not in {one.label for one in before}
    ]
    return before, draw(st.permutations(after + new))


@effort(12, 3000)
@given(edits())
def test_the_deltas_lead_to_the_current_blocks(edited: tuple[list[Block], list[Block]]) -> None:
    """A reader who knew the blocks as seen, and follows the deltas, knows them as they are."""
    before, after = edited
    deltas = [json.loads(text) for text in memory_deltas(versions_of(before), after)]
    ids = {block.label: block.id for block in after}
    known = {block.id: (block.version, block.value) for block in before}
    for delta in deltas:
        assert delta["type"] == "memory_delta"
        if delta["op"] == "detached":
            del known[BlockId(delta["block"])]
            continue
        block_id = ids[delta["label"]]
        assert (delta["op"] == "edited") == (block_id in known)
        known[block_id] = (delta["version"], delta["value"])

    assert known == {block.id: (block.version, block.value) for block in after}


@effort(12, 3000)
@given(edits())
def test_there_are_deltas_exactly_when_something_changed(edited: tuple[list[Block], list[Block]]) -> None:
    """One for each block that is new, changed or gone; the order of the blocks is no change."""
    before, after = edited
    seen, now = versions_of(before), versions_of(after)
    changed = {id_ for id_ in (*seen, *now) if seen.get(id_) != now.get(id_)}

    assert len(memory_deltas(seen, after)) == len(changed)
    assert memory_deltas(now, after) == ()


@effort(12, 1000)
@given(edits())
def test_deltas_come_in_the_order_of_the_blocks(edited: tuple[list[Block], list[Block]]) -> None:
    """Those that are there first, then those that are gone: the same edits give the same bytes."""
    before, after = edited
    texts = memory_deltas(versions_of(before), after)
    deltas = [json.loads(text) for text in texts]
    labels = [delta["label"] for delta in deltas if delta["op"] != "detached"]

    assert [delta["op"] == "detached" for delta in deltas] == sorted(delta["op"] == "detached" for delta in deltas)
    assert labels == [block.label for block in after if block.label in labels]
    assert memory_deltas(versions_of(before), after) == texts


@effort(12, 1000)
@given(blocks())
def test_a_delta_tells_what_an_edit_must_know(block: Block) -> None:
    """What the block is for, its limit, and whether it may be edited at all."""
    (text,) = memory_deltas({}, [block])
    delta = json.loads(text)

    assert delta.get("description", "") == (block.description or "")
    assert delta["chars_limit"] == block.limit_chars
    assert delta.get("read_only", False) == block.read_only
