"""Turns: messages, passages and texts as an extractor reads them, with who says them and where that may come from."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from perdure.core.agents import Agent
from perdure.core.ids import PREFIXES, PassageId
from perdure.core.messages import Message
from perdure.core.passages import Passage
from perdure.core.sources import OUTSIDE, TrustLabel, WriteSource, least_trusted
from perdure.core.text.credentials import without_credentials
from perdure.core.text.zones import local, zone
from perdure.domain.provenance.context import sort_captured, sources_by_message
from perdure.features.facts.units.documents import render_json
from perdure.features.facts.values.extraction import USER, SpokenTurn
from perdure.features.facts.values.facts import Episode
from perdure.storage.tx import Tx


def user_name(tx: Tx, agent: Agent) -> str:
    """Return the name of the agent's user: that of its only identity, else `User`."""
    identities = tx.identities.list_by_agent(agent.id)
    return identities[0].name if len(identities) == 1 else USER


def is_turn(message: Message) -> bool:
    """Return whether facts are extracted from a message: what a user or the agent said, with a text. What an agent is
    sent in a group holds the words of several speakers, so it is not clear who "I" in it is."""
    if (message.sender_id or "").startswith(f"{PREFIXES['group']}-"):
        return False
    return message.kind == "message" and message.role in ("user", "assistant") and bool(message.text.strip())


def place_of(message: Message) -> dict[str, Any]:
    """Return the fields of an `Episode` that say which message it is."""
    return {"agent_id": message.agent_id, "conversation_seq": message.conversation_seq, "message_seq": message.seq}


def turn_of(message: Message, number: int, user: str, agent: Agent, trust: TrustLabel) -> SpokenTurn:
    """Return a message as the extractor reads it, without credentials. `number` is its place in the batch, from 1, and
    `user` the name of a speaker that the message does not name."""
    is_user = message.role == "user"
    return SpokenTurn(
        number=number,
        speaker=message.name or (user if is_user else agent.name),
        text=_readable(message.text),
        occurred_at=local(message.occurred_at, zone(agent.timezone)),
        trust=trust,
        is_user=is_user,
    )


def turn_of_episode(tx: Tx, episode: Episode, number: int, timezone: str) -> SpokenTurn:
    """Return a text from a program as a turn for the extractor; its scope may name the speaker as `actor_id`. `number`:
    its index in the batch, from 1; `timezone`: the speaker's."""
    is_user, scope = episode.trust == "user", episode.scope
    owner = (scope.get("user_id") or USER) if is_user else scope.get("agent_id") or episode.trust
    return SpokenTurn(
        number=number,
        speaker=scope.get("actor_id") or owner,
        text=_readable(_text_of(tx, episode)),
        occurred_at=local(episode.occurred_at, zone(timezone)),
        trust=episode.trust,
        is_user=is_user,
        kind=episode.kind,
    )


def turn_of_passage(
    passage: Passage, number: int, user: str, agent: Agent, sources: tuple[WriteSource, ...] = ()
) -> SpokenTurn:
    """Return a passage as a turn for the extractor: from the agent if it stored it in a run, else from `user`.
    `number`: its index in the batch, from 1; `sources`: what the run had read before."""
    is_user = not passage.source.get("run_id")
    trust: TrustLabel = "user" if is_user else "agent"
    if (kind := passage.source.get("type")) in get_args(TrustLabel):
        trust = cast(TrustLabel, kind)
    if outside := [source.source.label for source in sources if source.source.label in OUTSIDE]:
        trust = least_trusted(outside)
    return SpokenTurn(
        number=number,
        speaker=user if is_user else agent.name,
        text=_readable(passage.text),
        occurred_at=local(passage.occurred_at, zone(agent.timezone)),
        trust=trust,
        is_user=is_user,
        kind="text",
    )


def trusts_of(
    rows: Sequence[Message], sources: Mapping[int, Sequence[WriteSource]] | None = None
) -> Mapping[int, TrustLabel]:
    """Return the number of each message -> the kind of source that its text comes from.

    Args:
        rows: messages in order.
        sources: number of a message -> what its run had read before; the agent may repeat content from outside.
            In older stores it is missing; then what the agent says after a tool's result counts as the tool's.
    """
    trusts: dict[int, TrustLabel] = {}
    said_by_agent: TrustLabel = "agent"
    for row in rows:
        if row.kind == "message" and row.role in ("user", "tool"):
            said_by_agent = "tool" if row.role == "tool" else "agent"
        outside = [source.source.label for source in (sources or {}).get(row.seq, ()) if source.source.label in OUTSIDE]
        trusts[row.seq] = least_trusted(outside) if outside else "user" if row.role == "user" else said_by_agent
    return trusts


def turn_sources(tx: Tx, rows: Sequence[Message]) -> Mapping[int, tuple[WriteSource, ...]]:
    """Map the numbers of a conversation's messages to the further sources of facts in them, beside the speaker."""
    if not rows or not tx.sources.list_by_conversation(
        rows[0].agent_id, rows[0].conversation_seq, before_seq=rows[-1].seq + 1, limit=1
    ):
        return {}
    found = sources_by_message(tx, rows)
    return {row.seq: sort_captured(dict.fromkeys(found[row.id], row.id)) for row in rows if found[row.id]}


def _text_of(tx: Tx, episode: Episode) -> str:
    """Return what an episode says now; empty: its message or passage is gone."""
    if episode.text is not None:
        return render_json(episode.text) if episode.kind == "json" else episode.text
    if episode.agent_id is not None and episode.message_seq is not None:
        messages = tx.messages.list_by_seqs(episode.agent_id, [episode.message_seq])
        return messages[0].text if messages else ""
    passage_id = PassageId(episode.ref)
    return tx.passages.get(passage_id).text if tx.passages.find_places([passage_id]) else ""


def _readable(text: str) -> str:
    """Return a text without credentials, in Unicode's form NFC: patterns and models know `é` as one character."""
    return without_credentials(unicodedata.normalize("NFC", text))
