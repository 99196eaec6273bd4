"""What a request shows beside its messages, and the sources that this brings into the conversation."""

from __future__ import annotations

from perdure.core.agents import GuardSettings
from perdure.core.events import MemoryRecalled
from perdure.core.ids import is_id
from perdure.core.messages import Message
from perdure.core.provenance.sources import Source
from perdure.domain.provenance.context import context_sources, file_source, recalled_sources, sources_of_notes
from perdure.engine.run.builder import RequestBuilder
from perdure.engine.run.rows import NEWEST
from perdure.engine.run.tail import ROWS_PER_STEP


def note_shown(builder: RequestBuilder, recalled: MemoryRecalled | None) -> None:
    """Note what a request brings from outside beside its messages: recalled texts, working notes, open files and the
    list of steps. It is in the context of all that follows."""
    tx, agent, seq = builder.tx, builder.agent, builder.conversation.seq
    shown = () if recalled is None else recalled_sources(tx, recalled)
    shown += (*sources_of_notes(tx, agent.id, seq), *_of_files(builder), *_of_steps(builder))
    if not shown or (row := _row_of(builder)) is None:
        return
    known = {one.source for one in context_sources(tx, agent.id, seq, before_seq=NEWEST)}
    if new := [source for source in dict.fromkeys(shown) if source not in known]:
        tx.sources.add_to_message(agent.id, seq, row.seq, new, recalled=True)


def _row_of(builder: RequestBuilder) -> Message | None:
    """The row to note it with: what the run was asked; later the newest one, for older ones may leave the view."""
    rows = builder.log.messages
    asked = None if builder.log.steps else next((row for row in rows if row.role == "user"), None)
    if asked is not None or rows:
        return asked or rows[-1]
    newest = builder.tx.messages.list(
        builder.agent.id, conversation_seq=builder.conversation.seq, limit=1, newest_first=True, kinds=None
    )
    return newest[0] if newest else None


def _of_files(builder: RequestBuilder) -> tuple[Source, ...]:
    """The open files."""
    return tuple(file_source(builder.tx, key) for key in builder.memory.versions if is_id("file", key))


def _of_steps(builder: RequestBuilder) -> tuple[Source, ...]:
    """What the steps that the tail lists, also of rows out of view, brought."""
    tx, agent, seq = builder.tx, builder.agent, builder.conversation.seq
    most = GuardSettings.of(agent.settings).recent_steps
    rows = (
        tx.messages.list(agent.id, conversation_seq=seq, limit=ROWS_PER_STEP * most, newest_first=True) if most else ()
    )
    if not rows:
        return ()
    entered = tx.sources.list_by_conversation(agent.id, seq, from_seq=rows[-1].seq, before_seq=NEWEST)
    return tuple(one.source for one in entered)
