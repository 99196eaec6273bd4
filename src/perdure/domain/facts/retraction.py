"""What becomes of facts whose messages or passages are deleted or changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from perdure.domain.facts.graphs import delete_episodes, retract_facts
from perdure.storage.tx import Tx


def retract_deleted(tx: Tx, refs: Sequence[str], *, at: datetime) -> None:
    """Delete the episodes of deleted messages or passages, by their ids, and retract facts without other support."""
    for graph_id, episodes in groupby(tx.episodes.find(refs), attrgetter("graph_id")):
        delete_episodes(tx, tx.graphs.get(graph_id), list(episodes), at=at)


def retract_changed(tx: Tx, refs: Sequence[str], *, at: datetime) -> None:
    """Retract facts that only the former texts of messages or passages support, by their ids, and have the new texts
    extracted. What was not extracted yet is not concerned."""
    for graph_id, group in groupby(tx.episodes.find(refs), attrgetter("graph_id")):
        episodes = list(group)
        retract_facts(tx, tx.graphs.get(graph_id), episodes, at=at)
        tx.episodes.mark_waiting(graph_id, [episode.seq for episode in episodes])
