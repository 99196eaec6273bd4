"""The tool by which an agent proposes a change of what only a person changes."""

from __future__ import annotations

from perdure.core.blocks import replace_in
from perdure.core.errors import InvalidArguments
from perdure.core.specs import ToolOutcome
from perdure.domain.tools.calls import MemoryCall
from perdure.features.proposals.targets import find_target
from perdure.features.proposals.units import propose
from perdure.features.proposals.values import REASON_CHARS
from perdure.storage.tx import Tx

TOOL = "propose_change"


def propose_change(
    tx: Tx,
    call: MemoryCall,
    label: str,
    reason: str,
    evidence: str,
    new_value: str | None = None,
    old: str | None = None,
    new: str | None = None,
) -> ToolOutcome:
    """Store a proposal. Raises: InvalidArguments, BlockNotFound, TextNotFound, TextAmbiguous; as `propose`."""
    for name, text in (("reason", reason), ("evidence", evidence)):
        if not text.strip() or len(text) > REASON_CHARS:
            raise InvalidArguments(TOOL, f"{name} needs 1 to {REASON_CHARS:,} characters")
    target = find_target(tx, call, label)
    if (new_value is None) is (old is None) or (new_value is not None and new is not None):
        raise InvalidArguments(TOOL, "give either new_value, or old and new")
    value = new_value if new_value is not None else replace_in(target.value, old or "", new or "", label=target.label)
    proposal = propose(tx, call, target, value, reason=reason, evidence=evidence)
    return ToolOutcome(
        text=f"Proposal {proposal.number} waits for a person. Until it is approved, {target.label} stays as it is."
    )
