"""Proposals: changes of memory that an agent asks a person for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from perdure.core.ids import AgentId, MessageId, RunId
from perdure.core.text.forms import match_form, plain_form
from perdure.core.text.reprs import short_repr

ProposalState = Literal["open", "approved", "refused", "outdated"]
"""Waits for a person; was applied; was refused; was proposed anew, because its target had changed meanwhile."""

REASON_CHARS = 2_000
"""The most characters of a reason, of evidence, and of the words of a person who refuses."""
OPEN_MAX = 50
"""How many proposals of an agent may wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalTarget:
    """What a proposal changes, as it is now.

    Args:
        kind: the name of its `TargetKind`.
        label: how the agent calls it.
        limit_chars: the most characters of its value; None: its kind checks that itself.
    """

    kind: str
    id: str
    label: str
    value: str
    version: int
    limit_chars: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change that an agent proposed.

    Args:
        agent_id: the agent whose memory it changes.
        number: its number among the proposals for that agent, from 1.
        kind, target_id, label: what it changes.
        base_version, base_checksum: version and checksum of the value from which it was made.
        diff: unified, from that value to `new_value`.
        change_digest: the same for equal changes.
        proposer_id: the agent that proposed it: the same one, or one that shares its memory, such as its companion.
        run_id, message_id: where it was proposed; None: a person ran the tool.
        decided_by: the user or key that decided; None: nobody did yet.
        decision: why it was refused.
        version: the version of the target that it became.
    """

    __repr__ = short_repr("number", "label", "state")

    agent_id: AgentId
    number: int = 0
    kind: str
    target_id: str
    label: str
    base_version: int
    base_checksum: int
    new_value: str
    diff: str
    change_digest: str
    reason: str
    evidence: str
    state: ProposalState = "open"
    proposer_id: AgentId
    run_id: RunId | None = None
    message_id: MessageId | None = None
    created_at: datetime
    decided_at: datetime | None = None
    decided_by: str | None = None
    decision: str = ""
    version: int | None = None


def digest_of_change(diff: str) -> str:
    """Return a digest of the removed and added lines of a unified diff, independent of context; white space, case,
    width and invisible characters don't count."""
    lines = (" ".join(match_form(plain_form(line)).split()) for line in diff.splitlines() if line[:1] in ("+", "-"))
    return hashlib.sha256(
        "\n".join(line for line in lines if line not in ("+", "-")).encode("utf-8", "replace")
    ).hexdigest()
