"""What a conversation's log has not shown yet of what the agent knows: edits from outside, as delta messages."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from perdure.context.sections.memory_delta import memory_deltas, versions_of
from perdure.core.agents import Agent
from perdure.core.blocks import Block
from perdure.core.errors import NotFound
from perdure.core.ids import BlockId
from perdure.core.runs import Prefix
from perdure.domain.files.section import build_file_deltas, is_file_key
from perdure.domain.files.views import limits_of
from perdure.engine.ports import UnitInputs
from perdure.engine.run.prefixes import Memory
from perdure.storage.tx import Tx


def delta_texts(
    tx: Tx,
    agent: Agent,
    seen: Mapping[str, int],
    memory: Memory,
    prefix: Prefix,
    inputs: UnitInputs,
    *,
    folded: bool = False,
) -> tuple[str, ...]:
    """The texts of the messages that bring a log from what it has `seen` to what the agent knows now.

    Args:
        prefix: what the log stands behind.
        folded: its memory section shows the new values already, so it is only said that they count now.
    """
    blocks = tx.blocks.of_agent(agent.id)
    seen_blocks = {key: version for key, version in seen.items() if not is_file_key(key)}
    texts = memory_deltas(seen_blocks, blocks, labels=_seen_labels(tx, seen_blocks, blocks), folded=folded)
    window, _ = inputs.window(agent)
    return texts + build_file_deltas(
        tx,
        agent.id,
        seen,
        memory.versions,
        shown=prefix.seen,
        limits=limits_of(agent, window),
        counter=inputs.counter,
    )


def _seen_labels(tx: Tx, seen: Mapping[str, int], blocks: Sequence[Block]) -> dict[str, str]:
    """The labels that blocks had when this log last saw them; a block that was deleted has none any more."""
    now = versions_of(blocks)
    labels: dict[str, str] = {}
    for block_id, version in seen.items():
        if now.get(block_id) != version:
            with contextlib.suppress(NotFound):
                labels[block_id] = tx.blocks.version(BlockId(block_id), version).label
    return labels
