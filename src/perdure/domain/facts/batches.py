"""What waits for extraction: the next turns of a conversation, or the next texts that were given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import cast, get_args

from perdure.core.agents import Agent
from perdure.core.conversations import EPHEMERAL, Conversation
from perdure.core.facts.credentials import without_credentials
from perdure.core.facts.extraction import USER, Batch, Turn
from perdure.core.facts.values import Entity, Episode, Fact, FactFilter, Graph
from perdure.core.ids import PREFIXES, AgentId, EpisodeId, Ids, PassageId
from perdure.core.messages import Message
from perdure.core.passages import CAPTURED, Passage
from perdure.core.provenance.sources import OUTSIDE, TrustLabel, WriteSource, least_trusted
from perdure.domain.agents.automatic import bypasses
from perdure.domain.archives.passages import find_own_archive
from perdure.domain.facts.documents import render_json
from perdure.domain.facts.settings import AgentFacts, load_agent_facts, load_graph_settings
from perdure.domain.provenance.context import sort_captured, sources_by_message
from perdure.domain.provenance.policy import WritePolicy, load_policy
from perdure.storage.tx import Tx

CONTEXT_TURNS = 4
SCOPE_IDS = ("user_id", "agent_id", "run_id")
BATCH_CHARS = 8_000
"""The most characters of several texts in one batch; one alone may be longer."""
NAME_WORDS = 4
"""The longest name that is looked up, in words; of scripts without spaces, in pairs of characters."""
NAMES_MAX = 1_500
"""The most names that are looked up of one text."""
KNOWN_ENTITIES, KNOWN_FACTS = 30, 60
_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_CJK = re.compile(r"[\u3400-\u9fff\u3040-\u30ff]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedBatch:
    """A batch with what storing its facts needs.

    Attributes:
        graph: None: the agent has none yet.
        agent: None: the batch is of a graph's texts, for no agent.
        line: agent and number of the conversation, or below 0 of the archive; None: the batch is of waiting episodes.
        from_seq, upto_seq: after which and up to which row of the conversation or archive it reads.
        messages: of the turns, in order; or else `passages`, or `episodes`.
        sources: number of a turn -> what its facts may come from; not there: from who says it alone.
        policy: what becomes of facts from outside; of texts that were given it allows all.
    """

    batch: Batch
    graph: Graph | None
    settings: AgentFacts
    agent: Agent | None = None
    line: tuple[AgentId, int] | None = None
    from_seq: int = -1
    upto_seq: int = -1
    messages: Sequence[Message] = ()
    passages: Sequence[Passage] = ()
    episodes: Sequence[Episode] = ()
    sources: Mapping[int, tuple[WriteSource, ...]] = field(default_factory=dict)
    policy: WritePolicy = "allow"


def load_batch(tx: Tx, agent_id: AgentId, conversation_seq: int, *, rest: bool = True) -> LoadedBatch | None:
    """Load the next turns of a conversation, with what is known about them.

    With `rest` also fewer than a batch holds; and where the conversation has none, the next passages of the agent's own
    archive, and then what else waits in its graph. None: nothing is due, or extraction is off, paused or bypassed.
    Raises: NotFound.
    """
    agent = tx.agents.get(agent_id)
    settings, graph = load_agent_facts(agent.settings), tx.graphs.find_by_agent(agent_id)
    conversation = tx.conversations.get_by_seq(agent_id, conversation_seq)
    if settings.capture == "off" or conversation.settings.get(EPHEMERAL):
        return None
    if graph is not None and load_graph_settings(graph.settings).paused:
        return None
    if not bypasses(agent.settings, conversation):
        loaded = _load_turns(tx, agent, settings, graph, conversation, rest=rest)
        if loaded is not None or not rest:
            return loaded
    if not rest:
        return None
    loaded = _load_passages(tx, agent, settings, graph)
    return load_text_batch(tx, graph, agent_id) if loaded is None and graph is not None else loaded


def _load_turns(
    tx: Tx, agent: Agent, settings: AgentFacts, graph: Graph | None, conversation: Conversation, *, rest: bool
) -> LoadedBatch | None:
    """Load the next turns of a conversation, also those that a reset took out of view; None: none are due."""
    agent_id, conversation_seq, limit = agent.id, conversation.seq, settings.batch_turns * 10
    last = tx.episodes.last_seq(agent_id, conversation_seq)
    rows = tx.messages.list(
        agent_id,
        conversation_seq=conversation_seq,
        after_seq=last,
        before_seq=_first_open_seq(tx, agent_id, conversation_seq),
        limit=limit,
        reset=True,
    )
    messages: list[Message] = []
    tokens = upto = 0
    full = len(rows) == limit
    for row in rows:
        if is_turn(row):
            if messages and (len(messages) >= settings.batch_turns or tokens + row.tokens > settings.batch_tokens):
                full = True
                break
            messages.append(row)
            tokens += row.tokens
        upto = row.seq
    full = full or len(messages) >= settings.batch_turns or tokens >= settings.batch_tokens
    if not (full or (rest and messages)):
        return None
    before: Sequence[Message] = ()
    if last >= 0:
        before = tx.messages.list(
            agent_id,
            conversation_seq=conversation_seq,
            before_seq=last + 1,
            newest_first=True,
            limit=CONTEXT_TURNS * 3,
            reset=True,
        )
    user = user_name(tx, agent)
    sources = turn_sources(tx, messages)
    trusts = _trusts([*reversed(before), *rows], sources)
    earlier = [row for row in before if is_turn(row)][:CONTEXT_TURNS]
    turns = [_turn(row, number, user, agent.name, trusts[row.seq]) for number, row in enumerate(messages, 1)]
    context = [_turn(row, 0, user, agent.name, trusts[row.seq]) for row in reversed(earlier)]
    batch = Batch(turns=turns, context=context)
    return LoadedBatch(
        batch=_with_known(tx, graph, batch, user),
        graph=graph,
        settings=settings,
        agent=agent,
        line=(agent_id, conversation_seq),
        from_seq=last,
        upto_seq=upto,
        messages=messages,
        sources={number: sources[row.seq] for number, row in enumerate(messages, 1) if row.seq in sources},
        policy=load_policy(tx, agent) if sources else "allow",
    )


def _load_passages(tx: Tx, agent: Agent, settings: AgentFacts, graph: Graph | None) -> LoadedBatch | None:
    """Load the next passages that the agent or others put into its own archive; None: there are none."""
    archive = find_own_archive(tx, agent.id)
    if archive is None:
        return None
    line = (agent.id, -1 - archive.number)  # conversations have the other numbers
    last = tx.episodes.last_seq(*line)
    rows = tx.passages.list(archive.id, after_seq=last, limit=settings.batch_turns)
    passages: list[Passage] = []
    tokens, upto = 0, last
    for row in rows:
        if passages and tokens + len(row.text) // 4 > settings.batch_tokens:
            break
        if row.source.get("type") != CAPTURED:  # its messages are read themselves
            passages.append(row)
            tokens += len(row.text) // 4
        upto = row.seq
    if upto == last:
        return None
    user = user_name(tx, agent)
    writes = {write.ref: write.sources for write in tx.sources.list_by_refs(archive.id, [one.id for one in passages])}
    turns = [
        _turn_of_passage(passage, number, user, agent.name, writes.get(passage.id, ()))
        for number, passage in enumerate(passages, 1)
    ]
    return LoadedBatch(
        batch=_with_known(tx, graph, Batch(turns=turns), user) if turns else Batch(turns=()),
        graph=graph,
        settings=settings,
        agent=agent,
        line=line,
        from_seq=last,
        upto_seq=upto,
        passages=passages,
        sources={number: writes[one.id] for number, one in enumerate(passages, 1) if one.id in writes},
        policy=load_policy(tx, agent) if writes else "allow",
    )


def load_text_batch(tx: Tx, graph: Graph, agent_id: AgentId | None) -> LoadedBatch | None:
    """Load the oldest texts, JSON documents, and changed messages and passages that wait in a graph, all of one user,
    agent and run; None: none does, or extraction is paused.

    Raises: NotFound.
    """
    agent = None if agent_id is None else tx.agents.get(agent_id)
    settings = AgentFacts() if agent is None else load_agent_facts(agent.settings)
    if load_graph_settings(graph.settings).paused:
        return None
    waiting: list[Episode] = []
    for episode in tx.episodes.list_waiting(graph.id, limit=settings.batch_turns):
        if waiting and not _together(waiting, episode):
            break
        waiting.append(episode)
    if not waiting:
        return None
    turns = [_given_turn(tx, episode, number) for number, episode in enumerate(waiting, 1)]
    batch = _with_known(tx, graph, Batch(turns=turns), turns[0].speaker, scope=scope_of(waiting[0]))
    return LoadedBatch(batch=batch, graph=graph, settings=settings, agent=agent, episodes=waiting)


def episodes_of(loaded: LoadedBatch, graph: Graph, *, ids: Ids, at: datetime) -> Sequence[Episode]:
    """Build the episodes of a batch's turns, in order."""
    if loaded.episodes:
        return loaded.episodes
    return [
        Episode(
            id=EpisodeId(ids.new("episode")),
            graph_id=graph.id,
            kind="message",
            ref=message.id,
            agent_id=message.agent_id,
            conversation_seq=message.conversation_seq,
            message_seq=message.seq,
            trust=turn.trust,
            occurred_at=turn.occurred_at,
            created_at=at,
            extracted_at=at,
        )
        for message, turn in zip(loaded.messages, loaded.batch.turns, strict=bool(loaded.messages))
    ] + [
        Episode(
            id=EpisodeId(ids.new("episode")),
            graph_id=graph.id,
            kind="text",
            ref=passage.id,
            trust=turn.trust,
            occurred_at=turn.occurred_at,
            created_at=at,
            extracted_at=at,
        )
        for passage, turn in zip(loaded.passages, loaded.batch.turns, strict=bool(loaded.passages))
    ]


def user_name(tx: Tx, agent: Agent) -> str:
    """Return the name of the one who talks to the agent: of its identity, else `User`."""
    identities = tx.identities.list_by_agent(agent.id)
    return identities[0].name if len(identities) == 1 else USER


def is_turn(message: Message) -> bool:
    """Return whether facts are extracted from a message: what a user or the agent said, with a text. What an agent is
    sent in a group holds the words of several speakers, so "I" in it is nobody in particular."""
    if (message.sender_id or "").startswith(f"{PREFIXES['group']}-"):
        return False
    return message.kind == "message" and message.role in ("user", "assistant") and bool(message.text.strip())


def names_in(text: str, *, limit: int = NAMES_MAX) -> Sequence[str]:
    """Return every run of a text's words that could be a name, each once."""
    names: dict[str, None] = {}
    words = [(match.start(), match.end()) for match in _WORD.finditer(text)]
    for index in range(len(words)):
        for end in range(index, min(index + NAME_WORDS, len(words))):
            if end > index and not text[words[end - 1][1] : words[end][0]].isspace():
                break
            names[text[words[index][0] : words[end][1]]] = None
    for run in _CJK.findall(text):
        for size in range(1, 2 * NAME_WORDS + 1):
            names.update(dict.fromkeys(run[start : start + size] for start in range(len(run) - size + 1)))
    return list(names)[:limit]


def known_entities(tx: Tx, graph: Graph, texts: Sequence[str], *, limit: int = KNOWN_ENTITIES) -> Sequence[Entity]:
    """Load the entities whose names or aliases stand in these texts, those of the last text first."""
    names = dict.fromkeys(name for text in reversed(texts) for name in names_in(text))
    found = tx.entities.find_by_names(graph.id, list(names))
    seqs = list(dict.fromkeys(seq for name in names for seq in found[name]))[:limit]
    return tx.entities.list_by_seqs(graph.id, seqs)


def _with_known(
    tx: Tx, graph: Graph | None, batch: Batch, user: str, *, scope: tuple[tuple[str, str], ...] = ()
) -> Batch:
    """Return the batch with the entities and facts that its turns may mean, and the rules and types of the graph; with
    a scope only facts of that scope, so that no user's text changes what another one said."""
    if graph is None:
        return batch
    settings = load_graph_settings(graph.settings)
    texts = [user, *(turn.text for turn in (*batch.context, *batch.turns))]
    speakers = dict.fromkeys((user, *(turn.speaker for turn in batch.turns)))
    entities = known_entities(tx, graph, [*texts, *speakers])
    facts: dict[int, Fact] = {}
    for entity in entities:
        for fact in tx.facts.page(
            graph.id, where=FactFilter(entities=(entity.seq,), scope=scope), newest_first=True, limit=KNOWN_FACTS // 3
        ):
            facts.setdefault(fact.seq, fact)
    known = sorted(list(facts.values())[:KNOWN_FACTS], key=lambda fact: fact.seq)
    named = {entity.seq for entity in entities}
    others = {seq for fact in known for seq in (fact.subject, fact.object)} - named
    entities = [*entities, *tx.entities.list_by_seqs(graph.id, sorted(others))]
    return replace(
        batch,
        entities=entities,
        facts=known,
        rules=tx.graphs.list_rules(graph.id),
        schema=settings.schema,
        prompt=settings.prompt,
        reflect=settings.reflect,
    )


def _trusts(
    rows: Sequence[Message], sources: Mapping[int, Sequence[WriteSource]] | None = None
) -> Mapping[int, TrustLabel]:
    """Number of a message -> who says it. What the agent says after content from outside may come from that; of stores
    that do not know yet where a tool's result came from, what it says after that result."""
    trusts: dict[int, TrustLabel] = {}
    agent: TrustLabel = "agent"
    for row in rows:
        if row.kind == "message" and row.role in ("user", "tool"):
            agent = "tool" if row.role == "tool" else "agent"
        outside = [one.source.label for one in (sources or {}).get(row.seq, ()) if one.source.label in OUTSIDE]
        trusts[row.seq] = least_trusted(outside) if outside else "user" if row.role == "user" else agent
    return trusts


def turn_sources(tx: Tx, rows: Sequence[Message]) -> Mapping[int, tuple[WriteSource, ...]]:
    """Number of a message of a conversation -> what facts from it may come from; not there: from who says it alone."""
    if not rows or not tx.sources.list_by_conversation(
        rows[0].agent_id, rows[0].conversation_seq, before_seq=rows[-1].seq + 1, limit=1
    ):
        return {}
    found = sources_by_message(tx, rows)
    return {row.seq: sort_captured(dict.fromkeys(found[row.id], row.id)) for row in rows if found[row.id]}


def _turn(message: Message, number: int, user: str, agent_name: str, trust: TrustLabel) -> Turn:
    """Return a message as the extractor reads it: without credentials."""
    is_user = message.role == "user"
    return Turn(
        number=number,
        speaker=message.name or (user if is_user else agent_name),
        text=without_credentials(message.text),
        occurred_at=message.occurred_at,
        trust=trust,
        is_user=is_user,
    )


def _given_turn(tx: Tx, episode: Episode, number: int) -> Turn:
    """Return a text that was given as the extractor reads it. Its scope may name the speaker (`actor_id`)."""
    is_user, scope = episode.trust == "user", episode.scope
    owner = (scope.get("user_id") or USER) if is_user else scope.get("agent_id") or episode.trust
    return Turn(
        number=number,
        speaker=scope.get("actor_id") or owner,
        text=without_credentials(_text_of(tx, episode)),
        occurred_at=episode.occurred_at,
        trust=episode.trust,
        is_user=is_user,
        kind=episode.kind,
    )


def _turn_of_passage(
    passage: Passage, number: int, user: str, agent_name: str, sources: tuple[WriteSource, ...] = ()
) -> Turn:
    """Return a passage as the extractor reads it: what the agent stored in a run, else what somebody gave it."""
    is_user = not passage.source.get("run_id")
    trust: TrustLabel = "user" if is_user else "agent"
    if (kind := passage.source.get("type")) in get_args(TrustLabel):
        trust = cast(TrustLabel, kind)
    if outside := [one.source.label for one in sources if one.source.label in OUTSIDE]:
        trust = least_trusted(outside)
    return Turn(
        number=number,
        speaker=user if is_user else agent_name,
        text=without_credentials(passage.text),
        occurred_at=passage.occurred_at,
        trust=trust,
        is_user=is_user,
    )


def _together(waiting: Sequence[Episode], episode: Episode) -> bool:
    """Return whether a text may be in one batch with those that wait before it."""
    size = sum(len(one.text or "") for one in (*waiting, episode))
    return scope_of(episode) == scope_of(waiting[0]) and size <= BATCH_CHARS


def scope_of(episode: Episode) -> tuple[tuple[str, str], ...]:
    """Return whose facts an episode's are: the part of its scope that names a user, an agent and a run."""
    return tuple((name, episode.scope[name]) for name in SCOPE_IDS if name in episode.scope)


def _text_of(tx: Tx, episode: Episode) -> str:
    """Return what an episode says now; empty: its message or passage is gone."""
    if episode.text is not None:
        return render_json(episode.text) if episode.kind == "json" else episode.text
    if episode.agent_id is not None and episode.message_seq is not None:
        messages = tx.messages.list_by_seqs(episode.agent_id, [episode.message_seq])
        return messages[0].text if messages else ""
    passage_id = PassageId(episode.ref)
    return tx.passages.get(passage_id).text if tx.passages.find_archives([passage_id]) else ""


def _first_open_seq(tx: Tx, agent_id: AgentId, conversation_seq: int) -> int | None:
    """Return the number of the active run's first message; its messages are extracted when it ends."""
    active = tx.runs.find_active(agent_id, conversation_seq)
    return None if active is None else active.first_message_seq
