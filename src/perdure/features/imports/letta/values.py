"""What an import of a whole server did or would do, and the ids that its things keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from perdure.core.ids import AgentId, Ids, OrgId, derived_id, is_id
from perdure.features.imports.common.values import ItemCount, OmissionReport

KINDS = (
    *("agents", "blocks", "tools", "MCP servers", "archives", "passages", "folders", "files"),
    *("conversations", "messages", "schedules", "identities", "groups"),
)
"""The kinds of things, in the order in which people read of them."""
READ = ("messages", "passages")
"""Kinds that a progress bar counts."""


@dataclass(slots=True, kw_only=True)
class LettaReport(OmissionReport):
    """What an import of a server did, or would do.

    Args:
        server: its address.
        agents: (name, id) of each agent that is taken; an empty id: it is not made yet.
        counts: kind -> how many of it are new, and how many are here already.
        secrets: names of secrets and variables that have to be given anew, with whose they are.
        to_review: names of tools with code that no agent can use before a person has read it.
    """

    server: str
    agents: list[tuple[str, AgentId]] = field(default_factory=list)
    counts: dict[str, ItemCount] = field(default_factory=lambda: {kind: ItemCount() for kind in KINDS})
    left_out: dict[str, int] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    to_review: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many messages and passages there are, as a progress bar counts them."""
        return sum(self.counts[kind].total for kind in READ)

    @property
    def has_news(self) -> bool:
        """Whether anything is new."""
        return any(count.new for count in self.counts.values())

    def note_secrets(self, owner: str, names: Iterable[str]) -> None:
        """Note secrets whose values are not copied."""
        self.secrets += [f"{owner}: {name}" for name in sorted(names)]


class ImportedIds:
    """Ids kept from another server. `kept`: kind -> the id of each new object; other kinds get fresh ids."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self.kept: dict[str, str] = {}

    def new(self, kind: str) -> str:
        """Return the kept id of a kind, or a fresh one."""
        return self.kept.get(kind) or self._ids.new(kind)


def ids_for(kind: str, source_id: str, org_id: OrgId) -> Sequence[str]:
    """Return the ids that an object of the server may have here: its own, and one to use if that is taken."""
    derived = derived_id(kind, org_id, "letta", source_id)
    return [source_id, derived] if is_id(kind, source_id) else [derived]
