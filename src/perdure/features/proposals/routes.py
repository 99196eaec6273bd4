"""What agents propose to change of their memory: listed, approved, refused. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from perdure.features.proposals.values import REASON_CHARS, Proposal, ProposalState
from perdure.library.parts.checks import LIMIT_MAX, NUMBER_MAX
from perdure.server.wire.base import WireRequest
from perdure.server.wire.blocks import WireBlock
from perdure.server.wire.fields import FILLED, keywords
from perdure.server.wire.http import Library, Router, ThisAgent
from perdure.server.wire.shapes import WireShape


class ProposalShape(
    WireShape,
    of=Proposal,
    fields=(
        "agent_id number kind target_id label base_version new_value diff reason evidence state proposer_id run_id"
        " message_id created_at decided_at decided_by decision version"
    ),
):
    """A change of memory that an agent proposed. `diff` is unified, from version `base_version` of its target to
    `new_value`; `version` is the one that it became."""


class RefusalIn(WireRequest):
    """Why a proposal is refused. The agent reads it if it proposes the same again."""

    reason: Annotated[str, keywords(maxLength=REASON_CHARS)] = ""


class ProtectionIn(WireRequest):
    """Whether only people change the block of this label."""

    label: Annotated[str, keywords(pattern=FILLED, maxLength=100)]
    protected: bool = True


router = Router(tags=["proposals"])

_Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")]
_State = Annotated[ProposalState | None, Query(description="Those in this state; by default in any.")]
_Before = Annotated[int | None, Query(ge=1, le=NUMBER_MAX, description="Those before the proposal of this number.")]


@router.get("/v1/proposals")
async def list_all_proposals(library: Library, state: _State = None, limit: _Limit = 50) -> list[ProposalShape]:
    """List the proposals for the memory of all agents, newest first."""
    return [ProposalShape.make(proposal) for proposal in await library.proposals.list(state=state, limit=limit)]


@router.get("/v1/agents/{agent_id}/proposals")
async def list_proposals(
    agent: ThisAgent, state: _State = None, limit: _Limit = 50, before: _Before = None
) -> list[ProposalShape]:
    """List the proposals for the memory of an agent, newest first."""
    found = await agent.proposals.list(state=state, limit=limit, before=before)
    return [ProposalShape.make(one) for one in found]


@router.get("/v1/agents/{agent_id}/proposals/{number}")
async def get_proposal(agent: ThisAgent, number: int) -> ProposalShape:
    """Get a proposal, with its difference."""
    return ProposalShape.make(await agent.proposals.get(number))


@router.post("/v1/agents/{agent_id}/proposals/{number}/approve")
async def approve_proposal(agent: ThisAgent, number: int) -> ProposalShape:
    """Apply a proposal as a version of its target. 409: it waits no more, or its target was changed meanwhile."""
    return ProposalShape.make(await agent.proposals.approve(number))


@router.post("/v1/agents/{agent_id}/proposals/{number}/refuse")
async def refuse_proposal(agent: ThisAgent, number: int, body: RefusalIn) -> ProposalShape:
    """Refuse a proposal: an equal one is not taken again. 409: it waits no more."""
    return ProposalShape.make(await agent.proposals.refuse(number, body.reason))


@router.post("/v1/agents/{agent_id}/proposals/protect")
async def protect_block(agent: ThisAgent, body: ProtectionIn) -> WireBlock:
    """Let only people change a block of the agent, or with `protected` off agents too, and answer with the block."""
    return WireBlock.make(await agent.proposals.protect(body.label, on=body.protected))
