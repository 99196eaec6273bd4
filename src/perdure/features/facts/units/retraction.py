"""What becomes of facts whose messages or passages are deleted or changed, or come from other programs: these are read
for facts only where that is asked for, also later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from perdure.core.conversations import Conversation
from perdure.core.ids import AgentId, EpisodeId, GraphId, Ids, MessageId, PassageId, derived_id, is_id
from perdure.core.messages import Message
from perdure.core.passages import Archive, Passage
from perdure.domain.agents.capture import first_open_seq
from perdure.features.facts.tables import Episodes, Graphs
from perdure.features.facts.units.graphs import delete_episodes, graph_of_agent, retract_facts
from perdure.features.facts.units.turns import is_turn, place_of, trusts_of, turn_sources
from perdure.features.facts.values.facts import Episode
from perdure.storage.tx import Tx


def retract_deleted(tx: Tx, refs: Sequence[str], at: datetime) -> None:
    """Delete the episodes of deleted messages or passages, by their ids; retract facts that nothing else supports."""
    for graph_id, episodes in groupby(tx.of(Episodes).find(refs), attrgetter("graph_id")):
        delete_episodes(tx, tx.of(Graphs).get(graph_id), list(episodes), at=at)


def retract_changed(tx: Tx, refs: Sequence[str], at: datetime) -> None:
    """Retract facts that only the former texts of messages or passages support, and have the new texts extracted.
    `refs` are the ids of the messages and passages; those that were not extracted yet need nothing."""
    found = tx.of(Episodes).find(refs)
    for graph_id, group in groupby(found, attrgetter("graph_id")):
        episodes = list(group)
        retract_facts(tx, tx.of(Graphs).get(graph_id), episodes, at=at)
        tx.of(Episodes).mark_waiting(graph_id, [episode.seq for episode in episodes])
    for ref in dict.fromkeys(refs):
        queue_passed(tx, ref, {episode.graph_id for episode in found if episode.ref == ref}, at=at)


def queue_passed(tx: Tx, ref: str, done: Collection[GraphId], *, at: datetime) -> None:
    """Queue a changed message or passage for the agents whose graph has no episode of it, as its old text had no fact.
    `done`: the graphs that have one. What extraction has not reached yet is skipped."""
    new = Episode(id=EpisodeId(""), graph_id=GraphId(""), kind="text", ref=ref, occurred_at=at, created_at=at)
    if is_id("message", ref):
        message = tx.messages.get(MessageId(ref))
        if not is_turn(message):
            return
        lines, seq = [(message.agent_id, message.conversation_seq)], message.seq
        trust = trusts_of([message], turn_sources(tx, [message]))[seq]
        new = replace(new, kind="message", trust=trust, occurred_at=message.occurred_at, **place_of(message))
    else:
        passage = tx.passages.get(PassageId(ref))
        number, seq = tx.archives.get(passage.archive_id).number, passage.seq
        lines = [(agent_id, -1 - number) for agent_id in tx.owners.list_agents("archives", passage.archive_id)]
        new = replace(new, occurred_at=passage.occurred_at)
    for agent_id, conversation_seq in lines:
        if tx.of(Episodes).last_seq(agent_id, conversation_seq) < seq:
            continue
        graph = tx.of(Graphs).find_by_agent(agent_id)
        if graph is not None and graph.id not in done:
            id_ = EpisodeId(derived_id("episode", graph.id, ref))
            tx.of(Episodes).add([replace(new, id=id_, graph_id=graph.id)])
        elif graph is None:  # no text of this agent had a fact so far: read this one once more
            tx.of(Episodes).put_last_seq(agent_id, conversation_seq, seq - 1, at=at)


PAGE = 500


def take_imported(
    tx: Tx,
    agent_id: AgentId,
    place: Conversation | Archive,
    texts: Collection[str],
    wanted: bool,
    ids: Ids,
    at: datetime,
) -> None:
    """Exclude the imported messages of a conversation, or passages of an archive, from extraction; if `wanted`, include
    those excluded before. `texts`: their ids."""
    line = place.seq if isinstance(place, Conversation) else -1 - place.number
    last = tx.of(Episodes).last_seq(agent_id, line)
    after, end = (-1, last) if wanted else (last, None)
    queue: list[str] = []
    while (end is None or after < end) and (rows := _rows(tx, agent_id, place, after)):
        queue += [
            row.id
            for row in rows
            if (row.id in texts) is wanted
            and (end is None or row.seq <= end)
            and (isinstance(row, Passage) or is_turn(row))
        ]
        after = rows[-1].seq
    found = tx.of(Episodes).find([*texts])
    if not wanted:
        tx.of(Episodes).put_last_seq(agent_id, line, after, at=at)
        for graph_id, group in groupby(found, attrgetter("graph_id")):
            tx.of(Episodes).mark_extracted(graph_id, [one.seq for one in group], at=at)
        if queue:
            graph_of_agent(tx, agent_id, ids=ids, at=at)
    for ref in queue:
        queue_passed(tx, ref, {one.graph_id for one in found if one.ref == ref}, at=at)


def _rows(
    tx: Tx, agent_id: AgentId, place: Conversation | Archive, after: int
) -> Sequence[Message] | Sequence[Passage]:
    """Return the next rows after this number that no unfinished run may still add to."""
    if isinstance(place, Archive):
        return tx.passages.page(place.id, above=after, limit=PAGE)
    end = first_open_seq(tx, agent_id, place.seq)
    return tx.messages.list(
        agent_id, conversation_seq=place.seq, after_seq=after, before_seq=end, limit=PAGE, reset=True
    )
