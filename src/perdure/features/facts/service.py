"""What an agent knows as facts: list, search, add, correct and forget them, and say what must not be remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypedDict, Unpack, get_args

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.forgetting.origins import FactOrigin
from perdure.core.ids import AgentId, FactId, GraphId, is_id
from perdure.core.sources import TrustLabel
from perdure.core.text.credentials import without_credentials
from perdure.core.text.reprs import short_repr
from perdure.domain.values import check_fields
from perdure.features.facts.entities import NAME_MAX_CHARS, AsyncEntities
from perdure.features.facts.extraction.extract import extract_due, extract_texts
from perdure.features.facts.extraction.extractors import extract_nothing
from perdure.features.facts.origins import origin_of_fact
from perdure.features.facts.search.plan import find_facts
from perdure.features.facts.tables import Entities, Episodes, Facts, Graphs
from perdure.features.facts.units.batches import count_waiting
from perdure.features.facts.units.documents import document_kind
from perdure.features.facts.units.edits import ends_of_edit
from perdure.features.facts.units.graphs import (
    FactFields,
    NewEntity,
    add_episode,
    add_facts,
    change_fact,
    create_graph,
    delete_facts,
    graph_of_agent,
    note_correction,
    restore_fact,
    store_entities,
    zone_of,
)
from perdure.features.facts.units.lines import sources_of
from perdure.features.facts.units.profile import TEXT_RELATION
from perdure.features.facts.values.extraction import USER
from perdure.features.facts.values.facts import (
    RELATION,
    Entity,
    Episode,
    Fact,
    FactFilter,
    FactHit,
    FactRule,
    FactState,
    Graph,
    GraphCounts,
)
from perdure.features.facts.values.settings import check_graph_settings, plain_graph_settings
from perdure.features.facts.views import FactConditions, Owner, entity_seqs, fact_filter, find_graph, with_entities
from perdure.library.parts.checks import Page, check_choice, check_limit, check_number, check_page, check_text, utc
from perdure.library.parts.part import reads, writes
from perdure.search.ranking.hits import Hits
from perdure.storage.tx import Tx

PERSON: Mapping[str, Any] = {"type": "person"}
"""The origin of versions that a person writes, see `Fact.origin`."""
VERSIONS_READ = 1_000


class NewFactFields(TypedDict, total=False):
    """Fields of a fact that a person adds; a missing field has its default, see `Fact`."""

    valid_at: datetime | None
    invalid_at: datetime | None
    type: str | None
    rating: float
    state: FactState
    trust: TrustLabel


@dataclass(frozen=True, slots=True, kw_only=True)
class FactHistory:
    """All versions of a fact, oldest first, and the episodes that support it."""

    __repr__ = short_repr("subject.name", "object.name", "versions", "sources")

    versions: Sequence[Fact]
    subject: Entity
    object: Entity
    sources: Sequence[Episode]


def _is_same(hit: FactHit, given: Mapping[str, Any], *, subject: int | None = None) -> bool:
    """Whether a known fact with a sentence is what is stated by it now, with these fields. `subject`: whom the sentence
    alone is about, if it does not name the fact's own; such a fact has a relation, as extraction finds one."""
    if subject is not None:
        if hit.fact.relation == TEXT_RELATION:
            return False
        names = (hit.subject.name, *hit.subject.aliases)
        if hit.fact.subject != subject and not any(name in hit.fact.text for name in names):
            return False
    skipped = ("state",) if subject is None else ("state", "relation")
    return all(getattr(hit.fact, name) == value for name, value in given.items() if name not in skipped)


def _made_current(tx: Tx, graph: Graph, fact: Fact, origin: Mapping[str, Any], *, at: datetime) -> Fact:
    """Return a fact that somebody states again, active, and with a person behind it if that is who states it."""
    is_person = origin["type"] == "person"
    if fact.state == "active" and (fact.is_of_person or not is_person):
        return fact
    changes: FactFields = {"state": "active", **({"trust": "user"} if is_person else {})}
    changed = change_fact(tx, graph, fact, changes, change="edit", origin=origin, at=at)
    note_correction(tx, graph)
    return changed


class AsyncFacts(AsyncEntities):
    """The facts of one agent. They are extracted from what is said, in the background; each links to its source."""

    async def list(
        self, *, limit: int = 50, after: FactId | None = None, **conditions: Unpack[FactConditions]
    ) -> Sequence[FactHit]:
        """A page of what is known, newest first; `after` is the last fact of the page before.

        Args:
            conditions: `at`, `since`, `until`: true then; `as_of`: believed then; `entity`: a name or an id;
                `relations`, `types`, `min_rating`, `states`, `trust`, `scope`.
        Raises: InvalidInput: a time without a zone, a limit below 1 or above 10,000; NotFound: an unknown entity.
        """
        return await self.page(Page(limit, ascending=False, after=after), **conditions)

    @reads
    def page(self, tx: Tx, page: Page, **conditions: Unpack[FactConditions]) -> Sequence[FactHit]:
        """List a page of facts, in either order. Raises: InvalidInput, NotFound."""
        check_page(page)
        if (graph := find_graph(tx, self._owner)) is None:
            return ()
        where = fact_filter(tx, graph, conditions)
        query = partial(tx.of(Facts).page, graph.id, where=where)
        return with_entities(tx, graph, page.load(query, lambda cursor: tx.of(Facts).get(FactId(cursor)).first_seq))

    async def search(
        self, text: str, *, limit: int = 10, explain: bool = False, **conditions: Unpack[FactConditions]
    ) -> Hits[FactHit]:
        """The facts that best match, by words, vectors and how near their entities are to those of the text, with the
        conditions of `list`. Raises: InvalidInput, NotFound."""
        check_limit(limit)

        def prepare(tx: Tx) -> tuple[Graph, FactFilter, str] | None:
            """Load graph, filter and time zone of the search; None: the agent has no graph yet."""
            if (graph := find_graph(tx, self._owner)) is None:
                return None
            return graph, fact_filter(tx, graph, conditions), zone_of(tx, self._owner, self._ports.settings.timezone)

        prepared = await self._ports.store.read(prepare)
        if prepared is None:
            return Hits()
        graph, where, home = prepared
        return await find_facts(
            self._ports.search, graph.id, text, where=where, limit=limit, explain=explain, timezone=home
        )

    @reads
    def get(self, tx: Tx, fact_id: FactId) -> FactHit:
        """The newest version of a fact. Raises: NotFound."""
        check_text("fact_id", fact_id)
        fact = tx.of(Facts).get(fact_id)
        return with_entities(tx, tx.of(Graphs).get(fact.graph_id), [fact])[0]

    @reads
    def origin(self, tx: Tx, fact_id: FactId) -> FactOrigin:
        """The versions of a fact with their reasons, and the texts that it comes from. Raises: NotFound."""
        return origin_of_fact(tx, fact_id, None, self._ports.settings.timezone)

    @reads
    def history(self, tx: Tx, fact_id: FactId) -> FactHistory:
        """All versions of a fact, oldest first, and the messages and texts that it comes from. Raises: NotFound."""
        check_text("fact_id", fact_id)
        versions = tx.of(Facts).versions(fact_id)
        last = versions[-1]
        (hit,) = with_entities(tx, tx.of(Graphs).get(last.graph_id), [last])
        sources = sources_of(tx, last.graph_id, [last])[last.first_seq]
        return FactHistory(versions=versions, subject=hit.subject, object=hit.object, sources=sources)

    @reads
    def list_supported(self, tx: Tx, text_id: str) -> Sequence[Fact]:
        """The believed facts that the message or passage of this id supports."""
        graph = find_graph(tx, self._owner)
        episodes = () if graph is None else tx.of(Episodes).list_by_refs(graph.id, [text_id])
        return [one for each in episodes for one in tx.of(Facts).list_by_episodes(each.graph_id, [each.seq])]

    @reads
    def list_deleted(self, tx: Tx, *, limit: int) -> Sequence[Fact]:
        """The facts that people deleted and nobody restored, newest deletion first, as versions with its time."""
        graph = find_graph(tx, self._owner)
        versions = () if graph is None else tx.of(Facts).list_of_people(graph.id, after=0, limit=VERSIONS_READ)
        newest = {one.id: one for one in tx.of(Facts).list_by_ids([version.id for version in versions])}
        return [one for one in versions if one.is_deletion and newest[one.id].seq == one.seq][:limit]

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
        return await self.add_fact(text, subject=subject, relation=relation, object_=object, **times)

    @writes
    def add_fact(
        self,
        tx: Tx,
        text: str,
        *,
        subject: str = "",
        relation: str = "REMEMBERS",
        object_: str = "",
        origin: Mapping[str, Any] = PERSON,
        scope: Mapping[str, str] | None = None,
        **fields: Unpack[NewFactFields],
    ) -> FactHit:
        """Add a fact that a person states; without a subject it is about the user, without `valid_at` true from now on.
        A credential in it is replaced. What is known gains a source, and is active again. Raises: InvalidInput,
        NotFound."""
        check_text("text", text)
        text = without_credentials(text.strip())
        for name, value in (("subject", subject), ("object", object_)):
            check_text(name, value)
            if len(value) > NAME_MAX_CHARS:
                raise InvalidInput(f"{name} has {len(value):,} characters, the limit is {NAME_MAX_CHARS}")
        subject, object_ = without_credentials(subject.strip()), without_credentials(object_.strip())
        ids, at = self._ports.ids, self._ports.clock.now()
        valid_at, invalid_at = utc("valid_at", fields.get("valid_at", at)), utc("invalid_at", fields.get("invalid_at"))
        graph = self._graph(tx)
        names = [
            NewEntity(name=subject or _user(tx, graph), type="Person"),
            NewEntity(name=object_ or "Memory", type="Concept"),
        ]
        entities = store_entities(tx, graph, names, ids=ids, at=at)
        episode = add_episode(tx, graph, "text", text, trust="user", scope=scope or {}, ids=ids, occurred_at=at, at=at)
        tx.of(Episodes).mark_extracted(graph.id, [episode.seq], at=at)
        ends = FactFields(subject=entities[0].seq, object=entities[1].seq)
        new = FactFields(text=text, relation=relation, scope=scope or {}, valid_at=valid_at, invalid_at=invalid_at)
        given = {name: value for name, value in {**fields, **new}.items() if name in fields or name != "valid_at"}
        is_plain = origin["type"] == "person" and not (subject or object_) and relation == TEXT_RELATION
        for hit in with_entities(tx, graph, tx.of(Facts).list_by_text(graph.id, text)):
            if _is_same(hit, {**given, **ends}) or (is_plain and _is_same(hit, given, subject=ends["subject"])):
                tx.of(Facts).add_sources(graph.id, [(hit.fact.first_seq, episode.seq)])
                return with_entities(tx, graph, [_made_current(tx, graph, hit.fact, origin, at=at)])[0]
        facts = add_facts(
            tx, graph, [{"rating": 0.8, **fields, **ends, **new}], origin=origin, ids=ids, at=at, episodes=[[episode]]
        )
        return with_entities(tx, graph, facts)[0]

    async def update(self, fact_id: FactId, **changes: Unpack[FactFields]) -> FactHit:
        """Correct a fact's `text`, `valid_at`, `rating` ..., and keep its history. Raises: InvalidInput, NotFound."""
        return await self.edit(fact_id, changes)

    @writes
    def edit(self, tx: Tx, fact_id: FactId, changes: FactFields, *, origin: Mapping[str, Any] = PERSON) -> FactHit:
        """Correct a fact, as a new version. A name in place of another in the sentence changes what the fact is about,
        and the user's name if it says that. Raises: InvalidInput, NotFound."""
        check_text("fact_id", fact_id)
        check_fields("a fact", changes, FactFields.__annotations__)
        times: Any = {name: utc(name, changes[name]) for name in ("valid_at", "invalid_at") if name in changes}
        if "text" in changes:
            check_text("text", changes["text"])
            times["text"] = without_credentials(changes["text"].strip())
            if origin["type"] == "person":
                times["trust"] = changes.get("trust", "user")
        fact = tx.of(Facts).get(fact_id)
        graph = tx.of(Graphs).get(fact.graph_id)
        at = self._ports.clock.now()
        fields: FactFields = {**changes, **times}
        if "text" in fields:
            fields = {**ends_of_edit(tx, graph, fact, fields["text"], ids=self._ports.ids, at=at), **fields}
        kind: Literal["accept", "edit"] = "accept" if fact.state == "proposed" else "edit"
        changed = change_fact(tx, graph, fact, fields, change=kind, origin=origin, at=at)
        note_correction(tx, graph)
        return with_entities(tx, graph, [changed])[0]

    async def accept(self, fact_id: FactId) -> FactHit:
        """Accept a proposed fact. Raises: NotFound."""
        return await self.edit(fact_id, {"state": "active"})

    async def delete(self, *fact_ids: FactId) -> Sequence[Fact]:
        """Stop believing these facts; return those that were believed. `restore` brings each back. Raises: NotFound."""
        return await self.forget(fact_ids)

    @writes
    def forget(self, tx: Tx, fact_ids: Sequence[FactId], *, origin: Mapping[str, Any] = PERSON) -> Sequence[Fact]:
        """As `delete`; `origin` is who does it. Raises: NotFound."""
        facts = [tx.of(Facts).get(fact_id) for fact_id in dict.fromkeys(fact_ids)]
        at = self._ports.clock.now()
        deleted: list[Fact] = []
        for graph_id in dict.fromkeys(fact.graph_id for fact in facts):
            own = [fact for fact in facts if fact.graph_id == graph_id]
            deleted += delete_facts(tx, tx.of(Graphs).get(graph_id), own, origin=origin, at=at)
        return deleted

    @writes
    def restore(self, tx: Tx, fact_id: FactId) -> FactHit:
        """Believe a deleted fact again. Raises: NotFound."""
        graph = tx.of(Graphs).get(tx.of(Facts).get(fact_id).graph_id)
        fact = restore_fact(tx, graph, fact_id, origin=PERSON, at=self._ports.clock.now())
        return with_entities(tx, graph, [fact])[0]

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
        check_text("text", text)
        check_choice("kind", kind or "text", ("text", "json"))
        check_choice("trust", trust, get_args(TrustLabel))
        read_as = document_kind(text, kind)
        text = without_credentials(text)
        ids, now = self._ports.ids, self._ports.clock.now()
        said_at = utc("occurred_at", occurred_at) or now

        def add(tx: Tx) -> tuple[Graph, Episode]:
            """Store the text; return its graph and episode."""
            graph = self._graph(tx)
            return graph, add_episode(
                tx, graph, read_as, text, trust=trust, scope=scope or {}, ids=ids, occurred_at=said_at, at=now
            )

        graph, own = await self._ports.store.write(add)
        facts = await extract_texts(self._ports, graph, self._agent_id, [own])
        return await self._ports.store.read(with_entities, graph, facts)

    async def extract(self) -> Sequence[FactHit]:
        """Extract now what was said since the last extraction, and return the new facts. Raises: StoreError."""
        behind = await self._ports.store.read(lambda tx: tx.of(Episodes).list_behind_of(self._id))
        facts: list[Fact] = []
        for seq in behind or (0,):
            facts += await extract_due(self._ports, (self._id, seq), rest=True)
        graph = await self.find_graph()
        return () if graph is None else await self._ports.store.read(with_entities, graph, facts)

    async def pause(self) -> None:
        """Extract nothing until `resume`."""
        await self.change_settings({"paused": True})

    async def resume(self) -> None:
        """Extract again, also what was said meanwhile."""
        await self.change_settings({"paused": False})

    async def update_settings(self, **changes: Any) -> None:
        """Change settings of what all agents of the graph know: `entity_types`, `fact_types`, `prompt`, `reflect`,
        `slots`, `strict_slots`, `paused`. Raises: InvalidInput."""
        await self.change_settings(changes)

    @writes
    def change_settings(self, tx: Tx, changes: Mapping[str, Any]) -> Graph:
        """Change settings of a graph, by the names of `GraphSettings`. Raises: InvalidInput, NotFound."""
        graph = self._graph(tx)
        settings = {**graph.settings, **plain_graph_settings(changes)}
        check_graph_settings(settings)
        graph = replace(graph, settings=settings, updated_at=self._ports.clock.now())
        tx.of(Graphs).put(graph)
        return graph

    @writes
    def add_rule(self, tx: Tx, text: str = "", *, relation: str | None = None, entity: str | None = None) -> FactRule:
        """Never remember facts with these words, of this relation, or about this entity, by its name or id; of several
        conditions all have to hold. Raises: InvalidInput; NotFound: an unknown entity."""
        if not text.strip() and not relation and not entity:
            raise InvalidInput("the rule is empty: give words, an entity, or a relation such as LIVES_IN")
        if relation and RELATION.fullmatch(relation) is None:
            raise InvalidInput(f"relation is {relation!r:.80}: write it in capitals, such as LIVES_IN")
        tx.limits.check("query_limit_chars", len(text), field="text")
        graph = self._graph(tx)
        at = self._ports.clock.now()
        about = (entity_seqs(tx, graph, entity) or (None,))[0]
        rule = FactRule(graph_id=graph.id, text=text.strip(), entity=about, relation=relation, created_at=at)
        number = tx.of(Graphs).add_rule(rule).seq
        return next(one for one in tx.of(Graphs).list_rules(graph.id) if one.seq == number)

    @reads
    def rules(self, tx: Tx) -> Sequence[FactRule]:
        """What must not be remembered."""
        graph = find_graph(tx, self._owner)
        return () if graph is None else tx.of(Graphs).list_rules(graph.id)

    @writes
    def delete_rule(self, tx: Tx, seq: int) -> None:
        """Remove a rule by its number. Raises: NotFound."""
        check_number("seq", seq)
        if not tx.of(Graphs).delete_rule(self._graph(tx).id, seq):
            raise NotFound("rule", str(seq))

    @reads
    def counts(self, tx: Tx) -> GraphCounts:
        """How much is known, how much waits, and what was dropped and why."""
        is_on = self._ports.find_extractor is not extract_nothing
        graph = find_graph(tx, self._owner)
        counts = GraphCounts() if graph is None else tx.of(Graphs).counts(graph.id)
        agents = [AgentId(self._owner)] if graph is None else tx.of(Graphs).list_agents(graph.id)
        waiting = sum(count_waiting(tx, agent) for agent in agents) if is_on else 0
        return replace(counts, waiting=counts.waiting + waiting)

    async def find_graph(self) -> Graph | None:
        """The graph; None: the agent has none yet. Raises: NotFound."""
        return await self._ports.store.read(find_graph, self._owner)

    async def create_graph(self, name: str, settings: Mapping[str, Any] | None = None) -> Graph:
        """A new graph that no agent has yet. Raises: InvalidInput."""
        check_text("name", name)
        settings = plain_graph_settings(settings or {})
        check_graph_settings(settings)
        ids, at = self._ports.ids, self._ports.clock.now()
        return await self._ports.store.write(lambda tx: create_graph(tx, name, ids=ids, at=at, settings=settings))

    @writes
    def open_graph(self, tx: Tx, name: str) -> Graph:
        """Return the oldest graph of this name; create one if there is none. Raises: InvalidInput."""
        check_text("name", name)
        ids, at = self._ports.ids, self._ports.clock.now()
        tx.of(Graphs).lock_names()
        return tx.of(Graphs).find_by_name(name) or create_graph(tx, name, ids=ids, at=at)

    async def attach_graph(self, graph_id: GraphId) -> None:
        """Let the agent use this graph in place of its own. Raises: NotFound."""
        await self._ports.store.write(lambda tx: tx.of(Graphs).attach(self._id, graph_id))

    @reads
    def timezone(self, tx: Tx, fact_id: FactId | None = None) -> str:
        """The time zone in which days of the owner or of a fact are. Raises: NotFound."""
        whose = self._owner if fact_id is None else tx.of(Facts).get(fact_id).graph_id
        return zone_of(tx, whose, self._ports.settings.timezone)

    def of(self, owner: Owner) -> AsyncFacts:
        """Return the facts of an agent or a graph; whether it exists is not checked."""
        return AsyncFacts(self._app, owner)

    def _graph(self, tx: Tx) -> Graph:
        """Return the owner's graph, which is created if an agent has none. Raises: NotFound."""
        if is_id("graph", self._owner):
            return tx.of(Graphs).get(GraphId(self._owner))
        return graph_of_agent(tx, AgentId(self._owner), ids=self._ports.ids, at=self._ports.clock.now())


def _user(tx: Tx, graph: Graph) -> str:
    """Return the name of the graph's user: of the first entity that is called `User`, or has that as an alias."""
    seqs = tx.of(Entities).find_by_names(graph.id, [USER])[USER]
    return tx.of(Entities).list_by_seqs(graph.id, seqs[:1])[0].name if seqs else USER
