"""Proposals on the wire. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated

from perdure.features.proposals.values import REASON_CHARS, Proposal
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import FILLED, keywords
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
