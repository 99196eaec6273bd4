"""When the prefix of a conversation is rewritten."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perdure.context.sections.assemble import MemoryCounts
from perdure.context.window.leaves import COLD_AFTER
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.ids import DEFAULT_ORG, AgentId, ConversationId
from perdure.core.runs import Prefix
from perdure.engine.context_engines import ContextEngines
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.prefixes import MemoryState, rewrite_reason
from perdure.providers.registry import ModelRegistry
from perdure.storage.tx import Tx

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
SOON, COLD = START + timedelta(minutes=5), START + COLD_AFTER + timedelta(seconds=1)

AGENT_ID = AgentId("agent-1")
AGENT = Agent(id=AGENT_ID, org_id=DEFAULT_ORG, name="Ada", model="m", created_at=START, updated_at=START)
CONVERSATION = Conversation(
    id=ConversationId("conv-1"), agent_id=AGENT_ID, seq=0, first_seq=0, created_at=START, updated_at=START
)
PREFIX = Prefix(
    agent_id=AGENT_ID,
    seq=0,
    conversation_seq=0,
    reason="first",
    system="",
    tools=(),
    seen={"block-1": 1},
    settings_revision=3,
    client_tools="key",
    marker="314159265358979",
    created_at=START,
)


def reason(
    prefix: Prefix | None,
    *,
    revision: int = 3,
    version: int = 1,
    client_tools: str = "key",
    last_used_at: datetime | None = START,
    now: datetime = SOON,
    first_seq: int = 0,
) -> str | None:
    """The reason for an agent whose last model call began at `last_used_at`, and whose block has this version."""
    tx = cast(
        Tx,
        SimpleNamespace(
            nodes=SimpleNamespace(list_by_seqs=lambda *_: []),
            steps=SimpleNamespace(find_last_time=lambda agent_id: last_used_at),
        ),
    )
    agent, conversation = replace(AGENT, settings_revision=revision), replace(CONVERSATION, first_seq=first_seq)
    memory = MemoryState(versions={"block-1": version}, counts=MemoryCounts())
    inputs = cast(UnitInputs, SimpleNamespace(now=now, engines=ContextEngines(), models=ModelRegistry()))
    return rewrite_reason(tx, agent, conversation, memory, prefix, client_tools=client_tools, inputs=inputs)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"revision": 4}, "settings"),
        ({"revision": 2}, "settings"),
        ({"client_tools": "other"}, "tools"),
        ({"version": 2}, None),  # a delta row tells it, and changes no byte that was sent
        ({"version": 2, "now": START + COLD_AFTER}, None),
        ({"version": 2, "now": COLD}, "cache_cold"),
        ({"version": 2, "last_used_at": None}, "cache_cold"),
        ({"now": COLD}, None),  # there is nothing to fold in
        ({"last_used_at": None}, None),
        ({"revision": 4, "version": 2, "now": COLD}, "settings"),
    ],
)
def test_a_prefix_is_rewritten_for_a_reason(changes: dict[str, Any], expected: str | None) -> None:
    """Only when it must be, or when it costs nothing and folds something in."""
    assert reason(PREFIX, **changes) == expected


def test_a_prefix_of_an_older_store_is_written_anew() -> None:
    """It has no marker, so anybody could write what looks like a message of the engine."""
    assert reason(replace(PREFIX, marker="")) == "marker"


@pytest.mark.parametrize(("first_seq", "expected"), [(0, "first"), (7, "reset")])
def test_the_first_prefix_has_its_own_reason(first_seq: int, expected: str) -> None:
    """Before it there is nothing to compare with."""
    assert reason(None, first_seq=first_seq) == expected
