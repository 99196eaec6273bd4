"""What counts as content from outside, and which calls count as writes to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from perdure.core.errors import UntrustedWrite
from perdure.core.ids import ToolId
from perdure.core.runs import Prefix
from perdure.core.sources import Source, WriteSource
from perdure.core.specs import Tool, ToolCode, ToolOutcome, ToolSpec
from perdure.domain.provenance.context import context_sources
from perdure.domain.provenance.policy import WriteGate, WritePolicy, foreign_sources, writes_memory
from perdure.storage.tx import Tx
from perdure.testing import InlineStore
from tests.contracts.base import AT, Contract

LOOK = Tool(id=ToolId("tool-1"), spec=ToolSpec(name="look", description="Look.", parameters={}, kind="custom"))
CODE = ToolCode(source="def look(agent_state):\n    'Look.'\n", function="look", takes_agent=True)


def test_a_call_that_was_refused_brings_nothing() -> None:
    """It did not run; one that ran and failed may say anything."""
    failed = ToolOutcome(text="no such page", status="error")

    assert foreign_sources(LOOK, {}, replace(failed, refused=True)) == ()
    assert foreign_sources(LOOK, {}, failed) == (Source("tool", "look"),)


@pytest.mark.parametrize("takes_agent", [True, False])
async def test_a_tool_of_somebody_writes_memory_if_it_takes_the_agent(takes_agent: bool) -> None:
    """Then it may change the agent's blocks."""

    def put(tx: Tx) -> bool:
        tx.tools.add(LOOK, code=replace(CODE, takes_agent=takes_agent), at=AT)
        return writes_memory(tx, LOOK)

    assert await InlineStore().write(put) is takes_agent


@pytest.mark.parametrize(("pinned", "is_shown"), [((0,), True), ((), False)])
async def test_a_message_that_is_pinned_before_the_view_brings_its_sources(
    pinned: tuple[int, ...], is_shown: bool
) -> None:
    """The model sees it; one that left the view without a summary it does not see."""
    contract, page = Contract(), Source("web", "https://one.example")

    def fill(tx: Tx) -> Sequence[Source]:
        agent = contract.add_agent(tx)
        drafts = [replace(contract.draft("read"), sources=(page,)), contract.draft("hello"), contract.draft("there")]
        tx.messages.append((agent.id, 0), drafts, [1, 1, 1], at=AT)
        prefix = Prefix(
            agent_id=agent.id,
            seq=0,
            conversation_seq=0,
            reason="first",
            system="s",
            tools=(),
            from_message_seq=1,
            pinned=pinned,
            created_at=AT,
        )
        tx.conversations.put_seen_versions(agent.id, 0, {}, prefix=tx.prefixes.add(prefix))
        return [one.source for one in context_sources(tx, agent.id, 0, before_seq=3)]

    assert await InlineStore().write(fill) == ([page] if is_shown else [])


@pytest.mark.parametrize("policy", ["block", "approve", "label", "allow"])
def test_who_may_write_behind_content_from_outside(policy: WritePolicy) -> None:
    """Nobody, who was approved, or everybody."""
    gate = WriteGate(policy, (WriteSource(Source("web", "https://one.example")),))
    for is_approved in (False, True):
        try:
            gate.check("memory_insert", is_approved=is_approved)
        except UntrustedWrite:
            may_write = False
        else:
            may_write = True

        assert may_write is (policy in ("label", "allow") or (policy == "approve" and is_approved))
