"""Units of work on archives: create, change, attach, detach and delete them and selections of their passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypedDict

from perdure.core.errors import InvalidInput
from perdure.core.features import Point
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.passages import Archive, Passage, PassageFilter
from perdure.domain.corrections import MEMORY_CORRECTED, tell_agents
from perdure.domain.texts import TEXTS_DELETED
from perdure.domain.values import batches, check_fields, check_item_limits, check_json
from perdure.storage.tx import Tx

ARCHIVES_OF: Point[[Tx, AgentId], Sequence[Archive]] = Point("archives_of")
"""Archives that an agent searches beside those that are attached to it."""

NAME_MAX_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of an archive's passages: those that match the filter and contain `text`, ignoring case."""

    where: PassageFilter = field(default_factory=PassageFilter)
    text: str = ""

    @property
    def everything(self) -> bool:
        """Whether every passage is selected."""
        return not self.text and self.where.matches_all


class ArchiveChanges(TypedDict, total=False):
    """The fields of an archive. In a change a missing field stays, and None removes the description."""

    name: str
    description: str | None
    metadata: Mapping[str, Any]


def create_archive(tx: Tx, archive_id: ArchiveId, fields: ArchiveChanges, *, at: datetime) -> Archive:
    """Create an archive without agents. Raises: InvalidInput, TooMany."""
    archive = check_archive(Archive(id=archive_id, org_id=tx.org_id, created_at=at, updated_at=at, **fields))
    check_item_limits(tx.limits, description=archive.description, metadata=archive.metadata)
    return tx.archives.add(archive)


def update_archive(tx: Tx, archive_id: ArchiveId, changes: ArchiveChanges, *, at: datetime) -> Archive:
    """Change an archive and return it. Raises: NotFound; InvalidInput: also for one of a folder or graph."""
    check_fields("an archive", changes, ArchiveChanges.__annotations__)
    before = tx.archives.get(archive_id)
    check_changeable(tx, archive_id, help="change the folder")
    after = check_archive(replace(before, **changes))
    if after == before:
        return before
    check_item_limits(tx.limits, description=after.description, metadata=after.metadata)
    tx.archives.put(replace(after, updated_at=at))
    return tx.archives.get(archive_id)


def archives_of(tx: Tx, agent_id: AgentId, *, files: bool) -> Sequence[Archive]:
    """Return the agent's attached archives, with `files` also those of files and features. Raises: NotFound."""
    tx.agents.model(agent_id)
    own = tx.archives.list_by_agent(agent_id)
    if not files:
        return own
    return [*own, *(archive for more in ARCHIVES_OF(tx, agent_id) for archive in more)]


def attach_archive(tx: Tx, agent_id: AgentId, archive_id: ArchiveId) -> None:
    """Give the agent the archive; twice is no error. Raises: NotFound; InvalidInput: it is a folder's or a graph's."""
    check_changeable(tx, archive_id, help="attach the folder")
    tx.archives.attach(agent_id, archive_id)


def detach_archive(tx: Tx, agent_id: AgentId, archive_id: ArchiveId) -> None:
    """Take the archive from the agent. Raises: NotFound; InvalidInput: it is a folder's or a graph's."""
    check_changeable(tx, archive_id, help="detach the folder")
    tx.archives.detach(agent_id, archive_id)
    MEMORY_CORRECTED(tx, agent_id)


def delete_archive_rows(tx: Tx, archive_id: ArchiveId, *, limit: int, at: datetime) -> int | None:
    """Do one step of deleting an archive, of at most `limit` rows; return how many passages it deleted, None: all, and
    the archive itself. Callers repeat it until then, also after a crash.

    The first steps take the archive from all agents, so that none of them finds the rest.
    Raises: NotFound; InvalidInput: it is a folder's or a graph's, and nothing was deleted.
    """
    check_changeable(tx, archive_id, help="delete the folder")
    tell_agents(tx, "archives", archive_id)
    if tx.archives.detach_all(archive_id, limit=limit):
        return 0
    passages = tx.passages.page(archive_id, limit=limit)
    if passages:
        return _delete(tx, archive_id, next(batches(passages)), at=at)
    if not tx.vectors.close(tx.archives.get(archive_id).number, limit=limit):
        return 0
    tx.archives.delete(archive_id)
    return None


def select_seqs(tx: Tx, archive_id: ArchiveId, selection: Selection, *, above: int = -1, limit: int) -> Sequence[int]:
    """Return the numbers of the selected passages, ascending: those above the number `above`, at most `limit`. Raises:
    NotFound; InvalidInput: the archive is a folder's or a graph's."""
    tx.archives.get(archive_id)
    check_changeable(tx, archive_id)
    passages = tx.passages.page(
        archive_id, where=selection.where, text=selection.text or None, above=above, limit=limit
    )
    return [passage.seq for passage in passages]


def delete_selected(
    tx: Tx, archive_id: ArchiveId, selection: Selection, seqs: Sequence[int], *, at: datetime
) -> tuple[int, int]:
    """Delete one batch of the passages with the numbers `seqs`, ascending, that are still selected.

    Returns: (how many were deleted, the last number in `seqs` that is done).
    Raises: NotFound; InvalidInput: the archive is a folder's or a graph's.
    """
    check_changeable(tx, archive_id)
    passages = tx.passages.page(
        archive_id, where=selection.where, text=selection.text or None, among=seqs, limit=len(seqs)
    )
    batch = next(batches(passages), [])
    count = _delete(tx, archive_id, batch, at=at)
    return count, batch[-1].seq if len(batch) < len(passages) else seqs[-1]


def check_changeable(tx: Tx, archive_id: ArchiveId, *, help: str = "change the files of") -> None:
    """Check that the archive is no folder's or graph's, so that callers may change it. Raises: InvalidInput, with
    `help`, a verb with its object, before the name of the folder."""
    owner = tx.archives.find_owner(archive_id)
    if owner is not None:
        raise InvalidInput(f"{archive_id} holds {owner.use.holds}: {owner.use.help or help} {owner.name!r}")


def check_archive(archive: Archive) -> Archive:
    """Return `archive` after checking its fields. Raises: InvalidInput."""
    name, description = archive.name, archive.description
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"the archive's name is {name!r:.80}: give a text that is not empty")
    if len(name) > NAME_MAX_CHARS:
        raise InvalidInput(f"the archive's name has {len(name):,} characters, the limit is {NAME_MAX_CHARS}")
    if description is not None and not isinstance(description, str):
        raise InvalidInput(f"description is {description!r:.80}: give a text")
    check_json("metadata", archive.metadata)
    return archive


def _delete(tx: Tx, archive_id: ArchiveId, passages: Sequence[Passage], *, at: datetime) -> int:
    """Delete passages of an archive, and what features learned from them alone; return how many there were."""
    TEXTS_DELETED(tx, [passage.id for passage in passages], at)
    tell_agents(tx, "archives", archive_id)
    return tx.passages.delete(archive_id, [passage.seq for passage in passages])
