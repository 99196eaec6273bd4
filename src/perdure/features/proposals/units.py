"""Units of work on proposals."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from perdure.core.blocks import PROTECTED, Author, Block
from perdure.core.errors import BlockLimitExceeded, ProposalDecided, ProposalOutdated, ProposalRefused, ToolError
from perdure.core.ids import AgentId
from perdure.core.sources import Source, WriteSource
from perdure.core.text.credentials import without_credentials, without_new_credentials
from perdure.core.text.line_diff import unified_diff
from perdure.domain.blocks.units import find_block, update_block
from perdure.domain.corrections import checksum
from perdure.domain.provenance.policy import MEMORY_OWNER
from perdure.domain.tools.calls import MemoryCall
from perdure.features.proposals.tables import Proposals
from perdure.features.proposals.targets import kind_of
from perdure.features.proposals.values import OPEN_MAX, Proposal, ProposalTarget, digest_of_change
from perdure.storage.tx import Tx


def propose(tx: Tx, call: MemoryCall, target: ProposalTarget, value: str, *, reason: str, evidence: str) -> Proposal:
    """Store that an agent proposes this value for a thing, and return the proposal. One that waits already, for the
    thing as it is now, is returned; one for the thing as it was before is outdated then.

    Raises: ProposalRefused: a person refused the same change; BlockLimitExceeded; ToolError: nothing would change, or
        too many proposals wait; InvalidInput: the thing may not have this value.
    """
    owner = next(filter(None, MEMORY_OWNER(tx, call.agent)), call.agent)
    tx.agents.lock(owner.id)
    value = without_new_credentials(target.value, value)
    if target.limit_chars is not None and len(value) > target.limit_chars:
        raise BlockLimitExceeded(target.label, size=len(value), limit=target.limit_chars)
    if not (diff := unified_diff(target.value, value)):
        raise ToolError(f"{target.label} holds that already: nothing would change")
    kind_of(target.kind).check(tx, owner.id, target.id, value)
    by_hand = call.person is not None
    proposal = Proposal(
        agent_id=owner.id,
        kind=target.kind,
        target_id=target.id,
        label=target.label,
        base_version=target.version,
        base_checksum=checksum(target.value),
        new_value=value,
        diff=diff,
        change_digest=digest_of_change(diff),
        reason=without_credentials(reason.strip()),
        evidence=without_credentials(evidence.strip()),
        proposer_id=call.agent.id,
        run_id=None if by_hand else call.run.id,
        message_id=None if by_hand else call.message_id,
        created_at=call.now,
    )
    proposals = tx.of(Proposals)
    if (refused := proposals.find_equal(proposal, "refused")) is not None:
        raise ProposalRefused(target.label, number=refused.number, decision=refused.decision)
    if (waiting := proposals.find_equal(proposal, "open")) is not None:
        if waiting.base_checksum == proposal.base_checksum:
            return waiting
        proposals.decide(waiting, "outdated", at=call.now)
    if proposals.count_open(owner.id) >= OPEN_MAX:
        raise ToolError(f"{OPEN_MAX} proposals wait for a person already: wait until some are decided")
    return proposals.add(proposal)


def approve(tx: Tx, agent_id: AgentId, number: int, *, author: Author, at: datetime) -> Proposal:
    """Apply an open proposal as a version by this person, and return it. Raises: NotFound; ProposalDecided;
    ProposalOutdated: the thing was changed meanwhile; BlockLimitExceeded."""
    proposal = _get_open(tx, agent_id, number)
    kind = kind_of(proposal.kind)
    if checksum(kind.get(tx, agent_id, proposal.target_id).value) != proposal.base_checksum:
        raise ProposalOutdated(proposal.label, number=number)
    messages = () if proposal.message_id is None else (proposal.message_id,)
    author = replace(author, sources=(WriteSource(Source("agent", proposal.proposer_id), messages),))
    version = kind.put(tx, agent_id, proposal.target_id, proposal.new_value, author, at)
    return tx.of(Proposals).decide(proposal, "approved", at=at, by=author.id, version=version)


def refuse(tx: Tx, agent_id: AgentId, number: int, reason: str, *, author: Author, at: datetime) -> Proposal:
    """Refuse an open proposal, and return it: an equal one is not taken again. Raises: NotFound, ProposalDecided."""
    proposal = _get_open(tx, agent_id, number)
    return tx.of(Proposals).decide(proposal, "refused", at=at, by=author.id, decision=reason.strip())


def protect(tx: Tx, agent_id: AgentId, label: str, *, on: bool, author: Author, at: datetime) -> Block:
    """Let only people change the agent's block, or with `on` False agents too; return it. Raises: BlockNotFound."""
    block = find_block(tx, agent_id, label)
    metadata = {name: value for name, value in block.metadata.items() if name != PROTECTED}
    changes = {"metadata": {**metadata, PROTECTED: True} if on else metadata}
    return update_block(tx, block.id, changes, author=author, at=at)


def _get_open(tx: Tx, agent_id: AgentId, number: int) -> Proposal:
    """Return a proposal that waits, with its agent locked. Raises: NotFound, ProposalDecided."""
    tx.agents.lock(agent_id)
    proposal = tx.of(Proposals).get(agent_id, number)
    if proposal.state != "open":
        raise ProposalDecided(number, state=proposal.state)
    return proposal
