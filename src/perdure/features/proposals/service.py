"""The proposals for an agent's memory: listed, approved and refused; and its blocks that only a person changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from perdure.core.blocks import Author, Block
from perdure.core.errors import InvalidInput
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.features.proposals import units
from perdure.features.proposals.tables import Proposals
from perdure.features.proposals.values import REASON_CHARS, Proposal, ProposalState
from perdure.library.parts.checks import check_choice, check_limit, check_number, check_text, outside
from perdure.library.parts.part import AsyncPart, reads, writes
from perdure.storage.tx import Tx


class AsyncProposals(AsyncPart):
    """The proposals for the memory of one agent, or of all. A person decides about each; `author` is who it is."""

    @reads
    def list(
        self, tx: Tx, *, state: ProposalState | None = "open", limit: int = 50, before: int | None = None
    ) -> Sequence[Proposal]:
        """The proposals in this state, newest first; None: in any. `before` is the number of the last one of the page
        before, of one agent. Raises: NotFound: the agent; InvalidInput."""
        check_limit(limit)
        check_number("before", before)
        if state is not None:
            check_choice("state", state, get_args(ProposalState))
        if self._agent_id is not None:
            tx.agents.model(self._agent_id)
        return tx.of(Proposals).list(self._agent_id, state=state, limit=limit, before=before)

    @reads
    def get(self, tx: Tx, number: int) -> Proposal:
        """The proposal of this number. Raises: NotFound."""
        check_number("number", number)
        return tx.of(Proposals).get(self._id, number)

    @writes
    def approve(self, tx: Tx, number: int, *, author: Author | None = None) -> Proposal:
        """Apply a proposal as a version by the person who approves it, and return it.

        Raises: NotFound; ProposalDecided: it waits no more; ProposalOutdated: the block was changed meanwhile, and
            nothing is written.
        """
        check_number("number", number)
        inputs = self._ports.inputs()
        approved = units.approve(tx, self._id, number, author=author or outside(), at=inputs.now)
        renew_system_message(tx, self._id, 0, inputs)
        return approved

    @writes
    def refuse(self, tx: Tx, number: int, reason: str = "", *, author: Author | None = None) -> Proposal:
        """Refuse a proposal, and return it; the agent reads the reason if it proposes the same again. Raises: NotFound,
        InvalidInput; ProposalDecided: it waits no more."""
        check_number("number", number)
        check_text("reason", reason)
        if len(reason) > REASON_CHARS:
            raise InvalidInput(f"the reason has {len(reason):,} characters, the limit is {REASON_CHARS:,}")
        at = self._ports.clock.now()
        return units.refuse(tx, self._id, number, reason, author=author or outside(), at=at)

    @writes
    def protect(self, tx: Tx, label: str, *, on: bool = True, author: Author | None = None) -> Block:
        """Let only people change the agent's block, or with `on` False agents too; return it. Raises: BlockNotFound."""
        check_text("label", label)
        inputs = self._ports.inputs()
        block = units.protect(tx, self._id, label, on=on, author=author or outside(), at=inputs.now)
        renew_system_message(tx, self._id, 0, inputs)
        return block
