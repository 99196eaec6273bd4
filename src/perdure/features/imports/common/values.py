"""What an import did or would do."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.core.blocks import Author
from perdure.core.ids import AgentId
from perdure.features.imports.sources.items import ImportSource

AUTHOR = Author(kind="system", id="import")
DELETED = "conversations that were deleted here"
FORGOTTEN = "memories that the agent has forgotten"
BUSY = "conversations in which something waits or runs; import again later"
TOO_LONG = "messages of more than {limit:,} characters"


@dataclass(slots=True)
class ItemCount:
    """How many of a kind are `new`, and how many are here `already`."""

    new: int = 0
    already: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.new + self.already


class OmissionReport:
    """A report with what an import leaves out: why, in words -> how many."""

    __slots__ = ()
    left_out: dict[str, int]

    def leave_out(self, why: str, count: int = 1) -> None:
        """Count things that are left out."""
        if count:
            self.left_out[why] = self.left_out.get(why, 0) + count


@dataclass(slots=True, kw_only=True)
class ImportReport(OmissionReport):
    """What an import did, or would do.

    Args:
        agents: name -> id of the agents that get something; an empty id: it is not made yet.
        changed: memories whose text, and conversations whose title, is another at the source since.
        withdrawn: messages that an earlier import brought, and that the source has left since.
    """

    source: ImportSource
    agents: dict[str, AgentId] = field(default_factory=dict)
    conversations: ItemCount = field(default_factory=ItemCount)
    messages: ItemCount = field(default_factory=ItemCount)
    memories: ItemCount = field(default_factory=ItemCount)
    withdrawn: int = 0
    changed: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many messages and memories the source has, without those that are left out."""
        return self.messages.total + self.memories.total

    @property
    def new(self) -> int:
        """The number of new items."""
        return self.messages.new + self.memories.new

    @property
    def has_news(self) -> bool:
        """Whether there is anything to do, or was."""
        return bool(self.new or self.conversations.new or self.withdrawn or self.changed)
