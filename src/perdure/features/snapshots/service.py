"""The snapshots of an agent: kept, restored, and made into agents of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import ConversationId, StepId
from perdure.core.runs import RunKey
from perdure.features.snapshots import units
from perdure.features.snapshots.cloning import clone_agent
from perdure.features.snapshots.documents import build_document, load_document, read_document, restore_document
from perdure.features.snapshots.moments import take
from perdure.features.snapshots.tables import Snapshots
from perdure.features.snapshots.values import NOTE_CHARS, Clone, Restored, SavePoint, Snapshot
from perdure.library.ids import is_id_start, resolve_id
from perdure.library.parts.checks import check_limit, check_number, check_text, outside
from perdure.library.parts.part import AsyncPart, find_conversation, reads, writes
from perdure.storage.tx import Tx


class AsyncSnapshots(AsyncPart):
    """Exact states of an agent that are kept, named by their numbers; and those at the ends of its steps."""

    @writes
    def make(
        self,
        tx: Tx,
        *,
        step: str | None = None,
        conversation: ConversationId | None = None,
        note: str = "",
        author: Author | None = None,
    ) -> Snapshot:
        """Take a snapshot of the agent and one conversation (default: its first), as they are now or as a step left
        them. Raises: NotFound, InvalidInput; ConversationBusy: a run has not ended."""
        check_text("note", note)
        if len(note) > NOTE_CHARS:
            raise InvalidInput(f"the note has {len(note):,} characters, the limit is {NOTE_CHARS:,}")
        moment = self._moment(tx, None, step, conversation)
        return units.keep(tx, moment, "manual", self._ports.inputs(), note=note, author=author or outside())

    @reads
    def list(self, tx: Tx, *, limit: int = 50, before: int | None = None) -> Sequence[Snapshot]:
        """The snapshots, newest first, before the number `before`. Raises: NotFound, InvalidInput."""
        check_limit(limit)
        check_number("before", before)
        tx.agents.model(self._id)
        return tx.of(Snapshots).list(self._id, limit=limit, before=before)

    @reads
    def get(self, tx: Tx, number: int) -> Snapshot:
        """The snapshot of this number. Raises: NotFound, InvalidInput."""
        check_number("number", number)
        return tx.of(Snapshots).get(self._id, number)

    @writes
    def delete(self, tx: Tx, number: int) -> None:
        """Delete a snapshot; the agent stays as it is. Raises: NotFound, InvalidInput."""
        check_number("number", number)
        tx.of(Snapshots).delete(self._id, number)

    async def restore(
        self,
        number: int | None = None,
        *,
        step: str | None = None,
        document: Mapping[str, Any] | None = None,
        shared: bool = False,
        author: Author | None = None,
    ) -> Restored:
        """Bring the agent back to a snapshot, to one of its own as one JSON object, or to what it was at the end of a
        step. Messages behind it leave the view and stay in the log; what the agent is now is kept as a snapshot, whose
        restore takes this one back.

        Archives, facts and files stay as they are, and so do what a person edited, removed or had forgotten since.

        Args:
            shared: whether blocks are changed that other agents have too.
        Raises: NotFound, InvalidInput; ConversationBusy: a run has not ended; SnapshotDiffers: nothing is changed.
        """
        read = None if document is None else await asyncio.to_thread(read_document, document)
        inputs, by = self._ports.inputs(), author or outside()

        def unit(tx: Tx) -> Restored:
            """Restore the agent in one transaction."""
            tx.agents.lock(self._id)
            tx.agents.model(self._id)
            if [number, step, document].count(None) != 2:
                raise InvalidInput("give the number of a snapshot, or a step, or a snapshot as one object")
            if read is not None:
                return restore_document(tx, self._id, read, inputs, author=by, shared=shared)
            return units.restore(tx, self._moment(tx, number, step, None), inputs, author=by, shared=shared)

        return await self._store.write(unit)

    @reads
    def document(self, tx: Tx, number: int) -> dict[str, Any]:
        """A snapshot as one JSON object, with all that the next request is built of; `load_snapshot` makes an agent of
        it, here or elsewhere. What was forgotten since is not in it. Raises: NotFound, InvalidInput."""
        check_number("number", number)
        return build_document(tx, tx.of(Snapshots).get(self._id, number).moment, self._ports.inputs())

    async def clone(
        self,
        name: str,
        number: int | None = None,
        *,
        step: str | None = None,
        conversation: ConversationId | None = None,
        author: Author | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Clone:
        """Make another agent of this one, as it is now, in a snapshot, or at the end of a step: with its whole log up
        to there, its own copies of blocks and of its archive, and the folders and archives that others have too.

        Args:
            progress: takes how many rows are copied.
        Raises: NotFound, NameInvalid, InvalidInput, AlreadyExists; SnapshotDiffers: no agent is made;
            ConversationBusy: a run goes on, so there is no state of now.
        """
        check_text("name", name)
        moment = await self._store.write(lambda tx: self._moment(tx, number, step, conversation))
        made, left = await clone_agent(moment, name, self._ports, author=author or outside(), progress=progress)
        return Clone(agent_id=made, name=name, left=left)

    def _moment(self, tx: Tx, number: int | None, step: str | None, conversation: ConversationId | None) -> SavePoint:
        """The moment of a snapshot or of a step; of neither, now. Raises: NotFound, InvalidInput, ConversationBusy."""
        if number is not None and step is not None:
            raise InvalidInput("give a snapshot's number or a step, not both")
        if number is not None:
            check_number("number", number)
            return tx.of(Snapshots).get(self._id, number).moment
        tx.agents.lock(self._id)
        if step is None:
            return take(tx, self._id, find_conversation(tx, self._id, conversation).seq)
        check_text("step", step)
        if not (is_id_start(step) and step.startswith("step-")):
            raise NotFound("step", step)
        found = tx.steps.get(StepId(resolve_id(tx, step)))
        if found.agent_id != self._id:
            name = tx.agents.get(self._id).name
            raise NotFound("step", step, hint=f"agent {name!r} has no such step")
        run = tx.runs.get_by_key(RunKey(self._id, found.run_seq))
        return take(tx, self._id, run.conversation_seq, found)


class AsyncSnapshotFiles(AsyncPart):
    """Agents of snapshots that were written to files."""

    async def load_snapshot(
        self, document: Mapping[str, Any], *, name: str | None = None, author: Author | None = None
    ) -> Clone:
        """Make an agent of a snapshot as one object (`agent.snapshots.document`); its tools are those of the same names
        here. Raises: InvalidInput, NameInvalid, AlreadyExists, TooMany; SnapshotDiffers: no agent is made."""
        read, by = await asyncio.to_thread(read_document, document), author or outside()
        if name is not None:
            check_text("name", name)
        inputs = self._ports.inputs()
        return await self._store.write(lambda tx: load_document(tx, read, name, inputs, author=by))
