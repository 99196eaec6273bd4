"""What an agent knows as facts, with the times at which they were true and believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Unpack

from perdure.core.facts.values import CommunityHit, Entity, Fact, FactContext, FactEvent, FactRule, GraphCounts, Profile
from perdure.core.ids import AgentId, EntityId, FactId
from perdure.core.passages import Passage
from perdure.core.provenance.sources import TrustLabel
from perdure.domain.facts.graphs import FactFields
from perdure.domain.forgetting import TidyItem
from perdure.library.checks import Page
from perdure.library.services.facts.facts import FactHistory, NewFactFields
from perdure.library.services.facts.views import CONTEXT_TOKENS, PROFILE_TOKENS, FactConditions
from perdure.library.services.store import Services
from perdure.search.hits import FactHit, Hits


class AsyncFacts:
    """The facts of one agent. They are extracted from what is said, in the background; each links to its source."""

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._services, self._agent_id = services, agent_id

    async def list(
        self, *, limit: int = 50, after: FactId | None = None, **conditions: Unpack[FactConditions]
    ) -> Sequence[FactHit]:
        """A page of what is known, newest first; `after` is the last fact of the page before.

        Args:
            conditions: `at`, `since`, `until`: true then; `as_of`: believed then; `entity`: a name or an id;
                `relations`, `types`, `min_rating`, `states`, `trust`, `scope`.
        Raises: InvalidInput: a time without a zone, a limit below 1 or above 10,000; NotFound: an unknown entity.
        """
        return await self._services.facts.list(self._agent_id, limit=limit, after=after, conditions=conditions)

    async def search(
        self, text: str, *, limit: int = 10, explain: bool = False, **conditions: Unpack[FactConditions]
    ) -> Hits[FactHit]:
        """The facts that best match, by words, vectors and how near their entities are to those of the text.

        Args:
            conditions: as of `list`.
        Raises: InvalidInput, NotFound.
        """
        return await self._services.facts.search(
            self._agent_id, text, limit=limit, explain=explain, conditions=conditions
        )

    async def get(self, fact_id: FactId) -> FactHit:
        """The newest version of a fact. Raises: NotFound."""
        return await self._services.facts.get(fact_id)

    async def history(self, fact_id: FactId) -> FactHistory:
        """All versions of a fact, oldest first, and the messages and texts that it comes from. Raises: NotFound."""
        return await self._services.facts.history(fact_id)

    async def add(
        self,
        text: str,
        *,
        subject: str = "",
        relation: str = "REMEMBERS",
        object: str = "",
        valid_at: datetime | None = None,
        invalid_at: datetime | None = None,
    ) -> FactHit:
        """Add a fact as a sentence; without a subject it is about the user.

        Args:
            relation: such as LIVES_IN.
            valid_at, invalid_at: from when until when it is true, with a zone; without both from now on.
        Raises: InvalidInput.
        """
        times: NewFactFields = {}
        if valid_at is not None or invalid_at is not None:
            times = {"valid_at": valid_at, "invalid_at": invalid_at}
        return await self._services.facts.add(
            self._agent_id, text, subject=subject, relation=relation, object_=object, **times
        )

    async def update(self, fact_id: FactId, **changes: Unpack[FactFields]) -> FactHit:
        """Correct a fact: `text`, `valid_at`, `invalid_at`, `rating`, and so on. The version before stays in its
        history. Raises: InvalidInput, NotFound."""
        return await self._services.facts.update(fact_id, changes)

    async def accept(self, fact_id: FactId) -> FactHit:
        """Accept a proposed fact. Raises: NotFound."""
        return await self._services.facts.update(fact_id, {"state": "active"})

    async def delete(self, *fact_ids: FactId) -> Sequence[Fact]:
        """Stop believing these facts; return those that were believed. `restore` brings each back. Raises: NotFound."""
        return await self._services.facts.delete(fact_ids)

    async def restore(self, fact_id: FactId) -> FactHit:
        """Believe a deleted fact again. Raises: NotFound."""
        return await self._services.facts.restore(fact_id)

    async def ingest(
        self,
        text: str,
        *,
        kind: Literal["text", "json"] | None = None,
        trust: TrustLabel = "user",
        scope: Mapping[str, str] | None = None,
        occurred_at: datetime | None = None,
    ) -> Sequence[FactHit]:
        """Extract the facts of a text or of a JSON document now, and return the new ones. Credentials are replaced.

        Args:
            kind: None: a text that is an object or a list in JSON is read as a document.
            trust: where it comes from. What no user and no agent says, such as `web` or `file`, stays out of profiles
                and of automatic recall.
        Raises: InvalidInput, ModelError.
        """
        return await self._services.facts.ingest(
            self._agent_id, text, kind=kind, trust=trust, scope=scope, occurred_at=occurred_at
        )

    async def extract(self) -> Sequence[FactHit]:
        """Extract now what was said since the last extraction, and return the new facts. Raises: StoreError."""
        return await self._services.facts.extract(self._agent_id)

    async def pause(self) -> None:
        """Extract nothing until `resume`."""
        await self._services.facts.update_settings(self._agent_id, {"paused": True})

    async def resume(self) -> None:
        """Extract again, also what was said meanwhile."""
        await self._services.facts.update_settings(self._agent_id, {"paused": False})

    async def update_settings(self, **changes: Any) -> None:
        """Change settings of what all agents of the graph know: `entity_types`, `fact_types`, `prompt`, `reflect`,
        `slots`, `strict_slots`, `paused`. Raises: InvalidInput."""
        await self._services.facts.update_settings(self._agent_id, changes)

    async def add_rule(self, text: str = "", *, relation: str | None = None, entity: str | None = None) -> FactRule:
        """Never remember facts with these words, of this relation, or about this entity, by its name or id; of several
        conditions all have to hold. Raises: InvalidInput; NotFound: an unknown entity."""
        return await self._services.facts.add_rule(self._agent_id, text=text, relation=relation, entity=entity)

    async def rules(self) -> Sequence[FactRule]:
        """What must not be remembered."""
        return await self._services.facts.list_rules(self._agent_id)

    async def delete_rule(self, seq: int) -> None:
        """Remove a rule by its number. Raises: NotFound."""
        await self._services.facts.delete_rule(self._agent_id, seq)

    async def entities(self, *, limit: int = 100, after: EntityId | None = None) -> Sequence[Entity]:
        """The people, places and things that facts are about, in order of creation. Raises: InvalidInput."""
        return await self._services.facts.entities(self._agent_id, Page(limit, ascending=True, after=after))

    async def counts(self) -> GraphCounts:
        """How much is known, how much waits, and what was dropped and why."""
        return await self._services.facts.counts(self._agent_id)

    async def profile(self, *, budget_tokens: int = PROFILE_TOKENS, user: str = "") -> Profile:
        """What is known about the user now, by slots, the most important first: true facts of trusted sources.

        Args:
            budget_tokens: the largest size of its text.
            user: the name of another entity whose profile it is.
        Raises: InvalidInput.
        """
        return await self._services.fact_views.profile(self._agent_id, budget_tokens=budget_tokens, user=user)

    async def timeline(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        limit: int = 100,
        newest_first: bool = False,
        entity: str | None = None,
        tags: Sequence[str] = (),
    ) -> Sequence[FactEvent]:
        """When facts began and ceased to be true, from `since` until before `until`, in order of time.

        Args:
            entity: the name or id of an entity that the facts are about.
            tags: relations and types of facts; empty: all.
        Raises: InvalidInput, NotFound.
        """
        return await self._services.fact_views.timeline(
            self._agent_id,
            since,
            until,
            limit=limit,
            newest_first=newest_first,
            tags=tags,
            conditions={"entity": entity},
        )

    async def context(self, query: str = "", *, budget_tokens: int = CONTEXT_TOKENS) -> FactContext:
        """What is known as one text for any program: the profile, the facts that match a query, the latest events; with
        the sources of each fact. Raises: InvalidInput."""
        return await self._services.fact_views.context(self._agent_id, query, budget_tokens=budget_tokens)

    async def communities(self, query: str = "", *, limit: int = 10) -> Sequence[CommunityHit]:
        """Groups of entities that many facts connect, by their summaries: those that match the query best; without one
        the largest. Raises: InvalidInput."""
        return await self._services.fact_views.communities(self._agent_id, query, limit=limit)

    async def tidy(self, *, dry_run: bool = False) -> Sequence[TidyItem]:
        """Let facts and passages fade by the agent's policy, `facts.forgetting` of its settings, and near-duplicates
        become one; return which. They leave recall, later searches, and `restore_last` brings them back. Passages fade
        in the archives that only this agent has.

        Args:
            dry_run: only return what would fade.
        """
        return await self._services.fact_views.tidy(self._agent_id, dry_run=dry_run)

    async def restore_last(self) -> Sequence[Fact | Passage]:
        """Take back the latest pass of `tidy`; return the facts and passages as they are again."""
        return await self._services.fact_views.restore_last(self._agent_id)
