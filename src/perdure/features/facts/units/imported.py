"""What imports bring from other programs: read for facts only where that is asked for, also later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from perdure.core.conversations import Conversation
from perdure.core.ids import AgentId, Ids
from perdure.core.messages import Message
from perdure.core.passages import Archive, Passage
from perdure.domain.agents.capture import first_open_seq
from perdure.features.facts.tables import Episodes
from perdure.features.facts.units.graphs import graph_of_agent
from perdure.features.facts.units.retraction import queue_passed
from perdure.features.facts.units.turns import is_turn
from perdure.storage.tx import Tx

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
    """Have extraction pass over the imported messages of a conversation, or passages of an archive, with the ids
    `texts`; if they are `wanted`, have it read those that it has passed over."""
    line = place.seq if isinstance(place, Conversation) else -1 - place.number
    last = tx.of(Episodes).last_seq(agent_id, line)
    after, end = (-1, last) if wanted else (last, None)
    queue: list[str] = []
    while (end is None or after < end) and (rows := _rows(tx, agent_id, place, after)):
        queue += [
            one.id
            for one in rows
            if (one.id in texts) is wanted
            and (end is None or one.seq <= end)
            and (isinstance(one, Passage) or is_turn(one))
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
    """Return the next rows behind this number that no run is about to add to."""
    if isinstance(place, Archive):
        return tx.passages.page(place.id, above=after, limit=PAGE)
    end = first_open_seq(tx, agent_id, place.seq)
    return tx.messages.list(
        agent_id, conversation_seq=place.seq, after_seq=after, before_seq=end, limit=PAGE, reset=True
    )
