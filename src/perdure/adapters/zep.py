"""Zep's sessions over the facts of one graph: messages go in, a context and the facts that matter come out.

A message is an episode of the graph; its session and user are the scope of the facts that it supports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from perdure import AlreadyExists, AsyncPerdure, FactHit, NotFound
from perdure.adapters.opening import AdapterStore, GraphAdapter, StoreOwner, plain
from perdure.features.facts.episodes import NewEpisode
from perdure.features.facts.views import local, zone
from perdure.library.parts.checks import in_name_form, name_form

LAST_MESSAGES = 10
QUERY_MESSAGES = 4
"""How many messages at the end of a session say which facts matter."""
FACTS = 20
_TRUST: Mapping[str, Any] = {"user": "user", "assistant": "agent", "tool": "tool", "function": "tool"}
"""Role -> how far its facts are trusted; of other roles no facts are extracted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a session. `role` names who says it, `role_type` is `user`, `assistant`, `tool` and so on."""

    content: str
    role_type: str
    role: str | None = None
    created_at: str | None = None
    metadata: Mapping[str, Any] | None = None
    processed: bool | None = None
    token_count: int | None = None
    updated_at: str | None = None
    uuid_: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact with its times, as ISO 8601. `fact` is an older name of `content`."""

    uuid_: str
    content: str
    fact: str
    name: str | None
    rating: float | None
    source_node_name: str | None
    target_node_name: str | None
    created_at: str
    expired_at: str | None
    valid_at: str | None
    invalid_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What `get` returns: a text for a prompt, the facts in it, and the last messages, oldest first."""

    context: str
    relevant_facts: Sequence[Fact]
    messages: Sequence[Message]
    metadata: Mapping[str, Any] | None = None
    facts: Sequence[str] | None = None
    summary: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("session_id", "user_id")
class Session:
    """A session of a user."""

    session_id: str
    user_id: str
    metadata: Mapping[str, Any] | None = None
    created_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMemoryResponse:
    """What `add` returns; `context` with `return_context`."""

    context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessResponse:
    """What `delete` returns."""

    message: str


class AsyncSessions(GraphAdapter):
    """`client.memory` of Zep's asynchronous client.

    Args:
        perdure: an open store.
        graph: the name of the graph; it is created with the first call.
    """

    def __init__(self, perdure: AsyncPerdure, *, graph: str = "zep") -> None:
        super().__init__(perdure, graph=graph)
        self._query_chars = perdure.app.ports.search.limits.query_limit_chars

    async def add_session(self, *, session_id: str, user_id: str, metadata: Mapping[str, Any] | None = None) -> Session:
        """Begin a session of a user; one that is there already is returned. Raises: InvalidInput; AlreadyExists: it is
        another user's, or has other metadata."""
        user_id = name_form(user_id)
        with suppress(NotFound):
            session = await self._session(session_id)
            if session.user_id != user_id or metadata not in (None, session.metadata):
                differing = ("user_id",) if session.user_id != user_id else ("metadata",)
                raise AlreadyExists("session", session_id, differing=differing, helps="take another id, or delete it")
            return session
        text = json.dumps({"user_id": user_id, "metadata": metadata})
        record = NewEpisode(text=text, kind="json", scope={"session_id": session_id, "user_id": user_id}, extract=False)
        await (await self._facts()).add_episodes([record])
        return await self._session(session_id)

    async def add(
        self,
        session_id: str,
        *,
        messages: Sequence[Any],
        ignore_roles: Sequence[str] | None = None,
        return_context: bool | None = None,
    ) -> AddMemoryResponse:
        """Add messages, as objects or mappings, and extract their facts. A new session is of a user of its name.

        Args:
            ignore_roles: role types whose messages are kept without extracting facts.
        Raises: InvalidInput, ModelError; TypeError: what is no message.
        """
        try:
            session = await self._session(session_id)
        except NotFound:
            session = await self.add_session(session_id=session_id, user_id=session_id)
        home = zone(await (await self._facts()).timezone())
        new = [_episode(_message(message), session, ignore_roles or (), home) for message in messages]
        await (await self._facts()).add_episodes(new)
        return AddMemoryResponse(context=(await self.get(session_id)).context if return_context else None)

    async def get(self, session_id: str, *, lastn: int | None = None, min_rating: float | None = None) -> Memory:
        """Return the facts about the session's user that are relevant to its last messages, also as one context.

        Args:
            lastn: how many messages to return.
        Raises: NotFound: there is no such session.
        """
        session = await self._session(session_id)
        count = LAST_MESSAGES if lastn is None else lastn
        episodes = await (await self._facts()).episodes(
            {"session_id": session_id}, limit=max(count, QUERY_MESSAGES) + 1, newest_first=True
        )
        last = [episode for episode in episodes if episode.kind == "text"]
        query = "\n".join(episode.text or "" for episode in reversed(last[:QUERY_MESSAGES]))
        hits = await (await self._facts()).search(
            query[-self._query_chars :], limit=FACTS, scope={"user_id": session.user_id}, min_rating=min_rating or 0.0
        )
        facts = [_fact(hit) for hit in hits]
        messages = [
            Message(
                content=episode.text or "",
                role_type=episode.scope.get("role_type", "norole"),
                role=episode.scope.get("role"),
                created_at=episode.occurred_at.isoformat(),
                processed=episode.extracted_at is not None,
                uuid_=episode.id,
            )
            for episode in reversed(last[:count])
        ]
        return Memory(
            context=_context(hits, zone(await (await self._facts()).timezone())),
            relevant_facts=facts,
            messages=messages,
            metadata=session.metadata,
            facts=[fact.content for fact in facts],
        )

    async def delete(self, session_id: str) -> SuccessResponse:
        """Delete a session: its messages, and the facts that nothing else supports. Raises: NotFound."""
        await self._session(session_id)
        await (await self._facts()).delete_episodes({"session_id": session_id})
        return SuccessResponse(message="session deleted")

    async def _session(self, session_id: str) -> Session:
        """Return a session. Its record is its first episode. Raises: NotFound."""
        for episode in await (await self._facts()).episodes({"session_id": session_id}, limit=1):
            record = json.loads(episode.text or "{}")
            return Session(
                session_id=session_id,
                user_id=record["user_id"],
                metadata=record["metadata"],
                created_at=episode.created_at.isoformat(),
            )
        raise NotFound("session", session_id, hint="add_session or add begins one")


class Sessions:
    """`client.memory` of Zep's client: each method is that of `AsyncSessions`."""

    def __init__(self, store: AdapterStore, inner: AsyncSessions) -> None:
        self._store, self._inner = store, inner

    add_session = plain(AsyncSessions.add_session)
    add = plain(AsyncSessions.add)
    get = plain(AsyncSessions.get)
    delete = plain(AsyncSessions.delete)


class Zep(StoreOwner[AdapterStore]):
    """Zep's client as far as sessions go: `memory.add_session`, `add`, `get` and `delete`, over a store of its own.

    Args:
        address, options: as `Perdure` takes them.
        graph: the name of the graph that holds the sessions.
    """

    def __init__(self, address: str | Path | None = None, *, graph: str = "zep", **options: Any) -> None:
        self._store = AdapterStore(address, **options)
        self.memory = Sessions(self._store, AsyncSessions(self._store.perdure, graph=graph))


def _message(one: Any) -> Message:
    """Return a message from an object or a mapping with its fields. Raises: TypeError."""
    names = ("content", "role_type", "role", "created_at")
    values: Any = {name: one.get(name) if isinstance(one, Mapping) else getattr(one, name, None) for name in names}
    if not isinstance(values["content"], str) or not isinstance(values["role_type"], str):
        raise TypeError(f"the message is {one!r:.80}: give content and role_type")
    return Message(**values)


def _episode(message: Message, session: Session, ignored: Sequence[str], home: tzinfo) -> NewEpisode:
    """Return a message as an episode to add; `ignored`: role types without facts; `home`: the zone of bare times."""
    named = {"role": message.role, "actor_id": message.role} if message.role else {}
    at = datetime.fromisoformat(message.created_at) if message.created_at else None
    return NewEpisode(
        text=message.content,
        scope={"session_id": session.session_id, "user_id": session.user_id, "role_type": message.role_type, **named},
        trust=_TRUST.get(message.role_type, "agent"),
        occurred_at=at.replace(tzinfo=home) if at is not None and at.tzinfo is None else at,
        extract=message.role_type in _TRUST and message.role_type not in ignored,
    )


def _fact(hit: FactHit) -> Fact:
    """Return the fact of a search hit in Zep's shape."""
    fact = hit.fact
    return Fact(
        uuid_=fact.id,
        content=fact.text,
        fact=fact.text,
        name=fact.relation,
        rating=fact.rating,
        source_node_name=hit.subject.name,
        target_node_name=hit.object.name,
        created_at=fact.created_at.isoformat(),
        expired_at=_iso(fact.expired_at),
        valid_at=_iso(fact.valid_at),
        invalid_at=_iso(fact.invalid_at),
    )


def _context(hits: Sequence[FactHit], home: tzinfo) -> str:
    """Return facts as a text for a prompt, each with the days at which it was true."""
    if not hits:
        return ""
    lines = []
    for fact in (hit.fact for hit in hits):
        since, until = (None if at is None else local(at, home).date() for at in (fact.valid_at, fact.invalid_at))
        lines.append(f"- {fact.text} ({since or 'unknown'} - {until or 'present'})")
    return "\n".join(["Facts about the user, with the dates from and until which they were true:", *lines])


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
