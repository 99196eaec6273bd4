"""What proposals change: blocks, and what other features have."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from perdure.core.blocks import Author, Block
from perdure.core.errors import NotFound
from perdure.core.features import Point
from perdure.core.ids import AgentId, BlockId
from perdure.domain.blocks.units import update_block
from perdure.domain.tools.calls import MemoryCall, find_own_block
from perdure.features.proposals.values import ProposalTarget
from perdure.storage.tx import Tx


class TargetKind(Protocol):
    """A kind of things that proposals change. `name` is stored with each proposal."""

    name: str

    def find(self, tx: Tx, call: MemoryCall, label: str) -> ProposalTarget | None:
        """Return the thing of this kind that the calling agent calls so; None: there is none."""

    def get(self, tx: Tx, agent_id: AgentId, target_id: str) -> ProposalTarget:
        """The thing as it is now. Raises: NotFound."""

    def check(self, tx: Tx, agent_id: AgentId, target_id: str, value: str) -> None:
        """Check that an agent may propose this value. Raises: NotFound, InvalidInput."""

    def put(self, tx: Tx, agent_id: AgentId, target_id: str, value: str, author: Author, at: datetime) -> int:
        """Give the thing this value, and return its version then. Raises: NotFound, InvalidInput, ToolError."""


PROPOSAL_TARGETS: Point[[], TargetKind] = Point("proposal_targets")
"""A kind of things, besides blocks, that proposals change. It is asked for each label before the blocks."""


class BlockTargets:
    """The blocks of agents."""

    name = "block"

    def find(self, tx: Tx, call: MemoryCall, label: str) -> ProposalTarget | None:
        """The block that the agent has in this conversation. Raises: BlockNotFound."""
        return _target(find_own_block(tx, call, label))

    def get(self, tx: Tx, agent_id: AgentId, target_id: str) -> ProposalTarget:
        """The block as it is now. Raises: NotFound, also where the agent has it no more."""
        if agent_id not in tx.owners.list_agents("blocks", target_id):
            raise NotFound("block", target_id, hint="it is no longer a block of the agent")
        return _target(tx.blocks.get(BlockId(target_id)))

    def check(self, tx: Tx, agent_id: AgentId, target_id: str, value: str) -> None:
        """A block may have any value."""

    def put(self, tx: Tx, agent_id: AgentId, target_id: str, value: str, author: Author, at: datetime) -> int:
        """Give the block this value, and return its version then. Raises: NotFound, BlockLimitExceeded."""
        self.get(tx, agent_id, target_id)
        return update_block(tx, BlockId(target_id), {"value": value}, author=author, at=at).version


def find_target(tx: Tx, call: MemoryCall, label: str) -> ProposalTarget:
    """Return what the calling agent names so. Raises: BlockNotFound."""
    found = (kind.find(tx, call, label) for kind in (*PROPOSAL_TARGETS(), BlockTargets()))
    return next(target for target in found if target is not None)


def kind_of(name: str) -> TargetKind:
    """Return the kind of this name. Raises: NotFound: the feature that has it is missing."""
    for kind in (BlockTargets(), *PROPOSAL_TARGETS()):
        if kind.name == name:
            return kind
    raise NotFound("kind of proposals", name, hint="this program lacks the feature that has it")


def _target(block: Block) -> ProposalTarget:
    """Return a block as a target."""
    return ProposalTarget(
        kind="block",
        id=block.id,
        label=block.label,
        value=block.value,
        version=block.version,
        limit_chars=block.limit_chars,
    )
