"""A call of a memory tool: its agent, run and message, and its limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.agents import Agent
from perdure.core.blocks import Author, Block, MemoryEdit, check_author
from perdure.core.errors import BlockChanged, BlockNotFound, BlockReadOnly
from perdure.core.ids import Ids, MessageId
from perdure.core.ports import TokenCounter
from perdure.core.runs import Run
from perdure.core.sources import Source, WriteSource
from perdure.core.text.forms import match_form
from perdure.domain.blocks.units import find_block
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCall:
    """The agent, run and message of a memory tool's call.

    Args:
        ids: makes the ids of what the call creates.
        result_tokens: the most tokens of the result, counted by `counter`.
        window_tokens: the model's window.
        person: the person who runs the tool by hand; None: the agent itself calls it.
        sources: the sources that were in the context of the call.
    """

    agent: Agent
    run: Run
    message_id: MessageId
    now: datetime
    ids: Ids
    counter: TokenCounter = field(default_factory=ScriptTokenCounter)
    result_tokens: int = 4_000
    window_tokens: int = 128_000
    person: Author | None = None
    sources: tuple[WriteSource, ...] = ()

    @property
    def author(self) -> Author:
        """The author of edits: the agent, with run and message, or the person who runs the tool by hand."""
        return self.person or Author(
            kind="agent",
            id=self.agent.id,
            agent_id=self.agent.id,
            run_id=self.run.id,
            message_id=self.message_id,
            sources=self.sources,
        )

    @property
    def passage_sources(self) -> tuple[WriteSource, ...]:
        """The sources of a passage that the call stores: at least the agent; none for a person."""
        if self.person is not None:
            return ()
        return self.sources or (WriteSource(Source("agent", self.agent.id), (self.message_id,)),)


def find_own_block(tx: Tx, call: MemoryCall, label: str) -> Block:
    """Return the agent's block with this label, else the only one that differs in case. Raises: BlockNotFound."""
    try:
        return find_block(tx, call.agent.id, label, call.run.conversation_seq)
    except BlockNotFound as error:
        label_form = match_form(label.strip())
        match [one for one in error.known if match_form(one) == label_form]:
            case [known]:
                return find_block(tx, call.agent.id, known, call.run.conversation_seq)
            case _:
                raise


def edit_own_block(
    tx: Tx, call: MemoryCall, label: str, edit: Callable[[Block], Block], *, whole: bool = False
) -> MemoryEdit:
    """Change a block of the agent by `edit`, a pure function. Raises: BlockNotFound, BlockReadOnly, BlockProtected.

    Args:
        whole: the edit replaces all of the value, whatever it is. Then the model must have been shown that value, or
            BlockChanged is raised: the edit would remove what another writer wrote meanwhile.
    """
    before = find_own_block(tx, call, label)
    if before.read_only:  # before the edit: its own error would not help the model
        raise BlockReadOnly(label)
    if before.metadata:
        check_author(before, call.author)
    if whole and not _is_shown(tx, call, before):
        raise BlockChanged(label, before.value)
    after = edit(before)
    if after != before:
        after = tx.blocks.put(after, expected=before.version, author=call.author, at=call.now)
    return MemoryEdit.between(before, after)


def _is_shown(tx: Tx, call: MemoryCall, block: Block) -> bool:
    """Return whether the model was shown this version of the block; true for a person who runs a tool by hand."""
    if call.person is not None:
        return True
    conversation = tx.conversations.get_by_seq(call.agent.id, call.run.conversation_seq)
    return conversation.prefix_seq is None or conversation.seen.get(block.id) == block.version
