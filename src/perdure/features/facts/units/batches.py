"""What waits for extraction: the next turns of a conversation, or the next texts that were given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from perdure.core.agents import Agent
from perdure.core.conversations import EPHEMERAL
from perdure.core.ids import AgentId, EpisodeId, Ids, PassageId
from perdure.core.messages import Message
from perdure.core.passages import CAPTURED, Passage
from perdure.core.sources import WriteSource
from perdure.domain.agents.automatic import bypasses
from perdure.domain.agents.capture import first_open_seq
from perdure.domain.archives.passages import find_own_archive
from perdure.domain.provenance.context import writes_of_passages
from perdure.domain.provenance.policy import WritePolicy, load_policy
from perdure.features.facts.tables import Episodes, Graphs
from perdure.features.facts.units.graphs import zone_of
from perdure.features.facts.units.known import with_known
from perdure.features.facts.units.turns import (
    is_turn,
    place_of,
    trusts_of,
    turn_of,
    turn_of_episode,
    turn_of_passage,
    turn_sources,
    user_name,
)
from perdure.features.facts.values.extraction import ReadBatch
from perdure.features.facts.values.facts import Episode, Graph, ScopePairs
from perdure.features.facts.values.settings import AgentFacts, load_agent_facts, load_graph_settings
from perdure.storage.tx import Tx

T = TypeVar("T", Message, Passage)

CONTEXT_TURNS = 4
COUNTED_MAX = 10_000
"""The most passages that are counted as waiting."""
SCOPE_IDS = ("user_id", "agent_id", "run_id")
BATCH_CHARS = 8_000
"""The most characters of several texts in one batch; one alone may be longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedBatch:
    """A batch with what storing its facts needs.

    Attributes:
        graph: None: the agent has none yet.
        agent: None: the batch is of a graph's texts, for no agent.
        conversation_key: agent and number of the conversation; -1 - n stands for archive n. None: waiting episodes.
        from_seq, upto_seq: it reads the rows after and up to these of the conversation or archive.
        messages: one for each turn, in order; a batch has these, or `passages`, or `episodes`.
        sources: number of a turn -> what its facts may come from besides its speaker, if there is anything.
        policy: what becomes of facts from outside; texts that programs give are all allowed.
        timezone: the zone of texts of no agent.
    """

    batch: ReadBatch = field(default_factory=lambda: ReadBatch(turns=()))
    graph: Graph | None
    settings: AgentFacts
    agent: Agent | None = None
    conversation_key: tuple[AgentId, int] | None = None
    from_seq: int = -1
    upto_seq: int = -1
    messages: Sequence[Message] = ()
    passages: Sequence[Passage] = ()
    episodes: Sequence[Episode] = ()
    sources: Mapping[int, tuple[WriteSource, ...]] = field(default_factory=dict)
    policy: WritePolicy = "allow"
    timezone: str = "UTC"


def load_batch(
    tx: Tx, agent_id: AgentId, conversation_seq: int, *, rest: bool = True, most: int | None = None
) -> LoadedBatch | None:
    """Load up to `most` turns of a conversation that extraction has not read, with what is known about them. None: no
    batch is due, or extraction is off, paused or bypassed. With `rest`, also fewer turns than a full batch, or else
    passages of the agent's archive. Raises: NotFound."""
    conversation = tx.conversations.get_by_seq(agent_id, conversation_seq)
    if (opened := _open_batch(tx, agent_id)) is None or conversation.settings.get(EPHEMERAL):
        return None
    agent, empty = opened
    loaded = None
    if not bypasses(agent.settings, conversation):
        loaded = _load_turns(tx, agent, empty, conversation_seq, rest=rest, most=most)
    return _load_passages(tx, agent, empty, most=most) if loaded is None and rest else loaded


def count_waiting(tx: Tx, agent_id: AgentId) -> int:
    """Count the turns and passages of an agent that wait for extraction; 0 if it is off. Raises: NotFound."""
    agent = tx.agents.get(agent_id)
    if load_agent_facts(agent.settings).capture == "off":
        return 0
    count = 0
    for seq in tx.of(Episodes).list_behind_of(agent_id):
        conversation = tx.conversations.get_by_seq(agent_id, seq)
        if not (conversation.settings.get(EPHEMERAL) or bypasses(agent.settings, conversation)):
            last, open_ = tx.of(Episodes).last_seq(agent_id, seq), first_open_seq(tx, agent_id, seq)
            count += tx.captures.get_backlog(agent_id, seq, after_seq=last, before_seq=open_).turns
    if (archive := find_own_archive(tx, agent_id)) is not None:
        last = tx.of(Episodes).last_seq(agent_id, -1 - archive.number)
        rows = tx.passages.page(archive.id, above=last, limit=COUNTED_MAX)
        count += sum(map(_is_own, rows))
    return count


def load_again(tx: Tx, loaded: LoadedBatch) -> LoadedBatch | None:
    """Load the turns of a batch as they are now; None: they are not to be extracted any more. Raises: NotFound."""
    if loaded.conversation_key is None:
        own = [episode.seq for episode in loaded.episodes]
        graph = tx.of(Graphs).get(loaded.episodes[0].graph_id)
        by = None if loaded.agent is None else loaded.agent.id
        return load_text_batch(tx, graph, by, own=own, known=False, timezone=loaded.timezone)
    agent_id, seq = loaded.conversation_key
    if (opened := _open_batch(tx, agent_id)) is None:
        return None
    agent, empty = opened
    if seq < 0:
        return _load_passages(tx, agent, empty, upto_seq=loaded.upto_seq)
    conversation = tx.conversations.get_by_seq(agent_id, seq)
    if conversation.settings.get(EPHEMERAL) or bypasses(agent.settings, conversation):
        return None
    return _load_turns(tx, agent, empty, seq, rest=True, upto_seq=loaded.upto_seq)


def _open_batch(tx: Tx, agent_id: AgentId) -> tuple[Agent, LoadedBatch] | None:
    """Load an agent, and a batch without turns; None: its extraction is off or paused. Raises: NotFound."""
    agent = tx.agents.get(agent_id)
    settings, graph = load_agent_facts(agent.settings), tx.of(Graphs).find_by_agent(agent_id)
    if settings.capture == "off" or (graph is not None and load_graph_settings(graph.settings).paused):
        return None
    return agent, LoadedBatch(graph=graph, settings=settings, agent=agent)


def _load_turns(
    tx: Tx,
    agent: Agent,
    empty: LoadedBatch,
    conversation_seq: int,
    *,
    rest: bool,
    most: int | None = None,
    upto_seq: int | None = None,
) -> LoadedBatch | None:
    """Load the next turns of a conversation, also those that a reset took out of view; None: no batch is due.

    Args:
        empty: the batch to fill, of `_open_batch`.
        rest: whether fewer turns than a full batch do.
        most: the most turns; None: the agent's setting.
        upto_seq: the last row of a batch that is loaded again; None: of a new one.
    """
    conversation_key, settings = (agent.id, conversation_seq), empty.settings
    last, limit = tx.of(Episodes).last_seq(*conversation_key), settings.batch_turns * 10
    ends = [first_open_seq(tx, *conversation_key), None if upto_seq is None else upto_seq + 1]
    rows = tx.messages.list(
        agent.id,
        conversation_seq=conversation_seq,
        after_seq=last,
        before_seq=min((end for end in ends if end is not None), default=None),
        limit=limit,
        reset=True,
    )
    messages, upto, is_full = _fill(rows, is_turn, lambda row: row.tokens, settings, most or settings.batch_turns)
    if not (is_full or len(rows) == limit or (rest and messages)):
        return None
    if not messages:  # many calls of tools in a row
        return replace(empty, conversation_key=conversation_key, from_seq=last, upto_seq=upto)
    before = _load_before(tx, *conversation_key, last + 1) if last >= 0 else ()
    loaded = _read_messages(tx, agent, empty, messages, [*before, *rows], known=upto_seq is None)
    return replace(loaded, conversation_key=conversation_key, from_seq=last, upto_seq=upto)


def _fill(
    rows: Sequence[T], is_read: Callable[[T], bool], tokens_of: Callable[[T], int], settings: AgentFacts, most: int
) -> tuple[Sequence[T], int, bool]:
    """Return the first rows that make a batch, the last row before the next batch, and whether it is full.

    Args:
        is_read: whether facts are extracted from a row.
        tokens_of: the tokens of a row; a batch has at most `settings.batch_tokens`, but at least one row.
        most: the most rows.
    """
    chosen: list[T] = []
    tokens, upto = 0, -1
    for row in rows:
        if is_read(row):
            if chosen and (len(chosen) >= most or tokens + tokens_of(row) > settings.batch_tokens):
                return chosen, upto, True
            chosen.append(row)
            tokens += tokens_of(row)
        upto = row.seq
    return chosen, upto, len(chosen) >= most or tokens >= settings.batch_tokens


def _load_before(tx: Tx, agent_id: AgentId, conversation_seq: int, before_seq: int) -> Sequence[Message]:
    """Load the messages of a conversation before number `before_seq`, in order, also those out of view by a reset."""
    limit = CONTEXT_TURNS * 3
    rows = tx.messages.list(
        agent_id, conversation_seq=conversation_seq, before_seq=before_seq, newest_first=True, limit=limit, reset=True
    )
    return rows[::-1]


def _read_messages(
    tx: Tx, agent: Agent, empty: LoadedBatch, messages: Sequence[Message], rows: Sequence[Message], *, known: bool
) -> LoadedBatch:
    """Return the batch `empty` filled with these messages of a conversation, new or changed, and `known`: with the
    entities and facts that they may mean. `rows` are the messages, and what was said before them, in order."""
    user = user_name(tx, agent)
    sources = turn_sources(tx, messages)
    trusts = trusts_of(rows, sources)
    context_rows = [row for row in rows if row.seq < messages[0].seq and is_turn(row)][-CONTEXT_TURNS:]
    turns = [turn_of(row, number, user, agent, trusts[row.seq]) for number, row in enumerate(messages, 1)]
    context = [turn_of(row, 0, user, agent, trusts[row.seq]) for row in context_rows]
    return replace(
        empty,
        batch=with_known(tx, empty.graph, ReadBatch(turns=turns, context=context), user, known=known),
        messages=messages,
        sources={number: sources[row.seq] for number, row in enumerate(messages, 1) if row.seq in sources},
        policy=load_policy(tx, agent) if sources else "allow",
    )


def _load_passages(
    tx: Tx, agent: Agent, empty: LoadedBatch, *, most: int | None = None, upto_seq: int | None = None
) -> LoadedBatch | None:
    """Load the next passages of the agent's own archive, by the parameters of `_load_turns`; None: there are none."""
    archive = find_own_archive(tx, agent.id)
    if archive is None:
        return None
    conversation_key = (agent.id, -1 - archive.number)  # conversations have the other numbers
    last, most = tx.of(Episodes).last_seq(*conversation_key), most or empty.settings.batch_turns
    rows = [
        row for row in tx.passages.page(archive.id, above=last, limit=most) if upto_seq is None or row.seq <= upto_seq
    ]
    if not rows:
        return None
    passages, upto, _ = _fill(rows, _is_own, _tokens_of, empty.settings, most)
    loaded = _read_passages(tx, agent, empty, passages, known=upto_seq is None)
    return replace(loaded, conversation_key=conversation_key, from_seq=last, upto_seq=upto)


def _is_own(passage: Passage) -> bool:
    """Return whether facts are extracted from a passage; one that was captured from messages repeats these."""
    return passage.source.get("type") != CAPTURED


def _tokens_of(passage: Passage) -> int:
    """Return about how many tokens a passage has."""
    return len(passage.text) // 4


def _read_passages(
    tx: Tx, agent: Agent, empty: LoadedBatch, passages: Sequence[Passage], *, known: bool
) -> LoadedBatch:
    """Return the batch `empty` filled with these passages, new or changed; `known` as of `_read_messages`."""
    user = user_name(tx, agent)
    writes = {id_: write.sources for id_, write in writes_of_passages(tx, passages).items()}
    turns = [
        turn_of_passage(passage, number, user, agent, writes.get(passage.id, ()))
        for number, passage in enumerate(passages, 1)
    ]
    return replace(
        empty,
        batch=with_known(tx, empty.graph, ReadBatch(turns=turns), user, known=known) if turns else empty.batch,
        passages=passages,
        sources={number: writes[one.id] for number, one in enumerate(passages, 1) if one.id in writes},
        policy=load_policy(tx, agent) if writes else "allow",
    )


def load_text_batch(
    tx: Tx,
    graph: Graph,
    agent_id: AgentId | None,
    *,
    own: Sequence[int] | None = None,
    without: Collection[EpisodeId] = (),
    known: bool = True,
    timezone: str = "UTC",
) -> LoadedBatch | None:
    """Load the oldest texts, JSON documents, and changed messages and passages that wait in a graph.

    All are of one user, agent and run; a text that could not be extracted before is alone. None: none waits, or
    extraction is off or paused.

    Args:
        agent_id: whose settings count; None: the defaults.
        own: only episodes of these numbers; None: any.
        without: no episodes of these ids, which other tasks extract now.
        known: whether with the entities and facts that they may mean.
        timezone: the zone of texts of no agent.
    Raises: NotFound.
    """
    agent = None if agent_id is None else tx.agents.get(agent_id)
    settings = AgentFacts() if agent is None else load_agent_facts(agent.settings)
    graph = tx.of(Graphs).get(graph.id)
    if load_graph_settings(graph.settings).paused:
        return None
    if own is None:
        if settings.capture == "off":
            return None
        limit = settings.batch_turns + len(without)
        found = [one for one in tx.of(Episodes).list_next(graph.id, limit=limit) if one.id not in without]
    else:
        found = [one for one in tx.of(Episodes).list_by_seqs(graph.id, own) if one.extracted_at is None]
    waiting: list[Episode] = []
    for episode in found:
        is_apart = episode.tries or (waiting and waiting[0].tries)
        if waiting and (is_apart or len(waiting) == settings.batch_turns or not _fits_batch(waiting, episode)):
            break
        waiting.append(episode)
    if not waiting:
        return None
    if waiting[0].text is None and (changed := _load_changed(tx, graph, waiting, agent, known=known)) is not None:
        return changed
    home = zone_of(tx, agent_id or graph.id, timezone)
    turns = [turn_of_episode(tx, episode, number, home) for number, episode in enumerate(waiting, 1)]
    speaker, scope = turns[0].speaker, scope_of(waiting[0])
    batch = with_known(tx, graph, ReadBatch(turns=turns), speaker, scope=scope, known=known)
    return LoadedBatch(batch=batch, graph=graph, settings=settings, agent=agent, episodes=waiting, timezone=timezone)


def _load_changed(
    tx: Tx, graph: Graph, waiting: Sequence[Episode], agent: Agent | None, *, known: bool
) -> LoadedBatch | None:
    """Load the changed messages of a conversation, or changed passages of an archive, that these episodes stand for;
    None: they were deleted. `agent` extracts passages of an archive that no agent has."""
    first, by_ref = waiting[0], {episode.ref: episode for episode in waiting}
    if first.agent_id is not None and first.conversation_seq is not None:
        agent = tx.agents.get(first.agent_id)
        empty = LoadedBatch(graph=graph, settings=load_agent_facts(agent.settings), agent=agent)
        found = tx.messages.list_by_seqs(agent.id, sorted(one.message_seq or 0 for one in waiting))
        messages, _, _ = _fill(found, is_turn, lambda row: row.tokens, empty.settings, len(found))
        if not messages:
            return None
        rows = [row for one in messages for row in (*_load_before(tx, agent.id, first.conversation_seq, one.seq), one)]
        loaded = _read_messages(tx, agent, empty, messages, rows, known=known)
        return replace(loaded, episodes=[by_ref[message.id] for message in messages])
    places = tx.passages.find_places([PassageId(one.ref) for one in waiting])
    if PassageId(first.ref) not in places:
        return None
    own, _ = places[PassageId(first.ref)]
    owners = tx.owners.list_agents("archives", own)
    if owners and (agent is None or agent.id not in owners):
        agent = tx.agents.get(owners[0])
    if agent is None:
        return None
    empty = LoadedBatch(graph=graph, settings=load_agent_facts(agent.settings), agent=agent)
    found_passages = tx.passages.list_by_seqs(own, [seq for archive_id, seq in places.values() if archive_id == own])
    passages, _, _ = _fill(found_passages, lambda one: True, _tokens_of, empty.settings, len(found_passages))
    loaded = _read_passages(tx, agent, empty, passages, known=known)
    return replace(loaded, episodes=[by_ref[passage.id] for passage in passages])


def episodes_of(loaded: LoadedBatch, graph: Graph, *, ids: Ids, at: datetime) -> Sequence[Episode]:
    """Return the episodes of a batch's turns, in order: those that waited, or new ones."""
    if loaded.episodes:
        return loaded.episodes
    rows: Sequence[Message | Passage] = loaded.messages or loaded.passages
    return [
        Episode(
            id=EpisodeId(ids.new("episode")),
            graph_id=graph.id,
            kind="message" if loaded.messages else "text",
            ref=row.id,
            trust=turn.trust,
            occurred_at=row.occurred_at,
            created_at=at,
            extracted_at=at,
            **(place_of(row) if isinstance(row, Message) else {}),
        )
        for row, turn in zip(rows, loaded.batch.turns, strict=bool(rows))
    ]


def _fits_batch(waiting: Sequence[Episode], episode: Episode) -> bool:
    """Return whether a text can join the batch of those before it: same place and scope, and short."""
    size = sum(len(one.text or "") for one in (*waiting, episode))
    shared = {(one.text is None, one.agent_id, one.conversation_seq, scope_of(one)) for one in (waiting[0], episode)}
    return len(shared) == 1 and size <= BATCH_CHARS


def scope_of(episode: Episode) -> ScopePairs:
    """Return the part of an episode's scope that says whose facts it has: of a user, an agent and a run."""
    return tuple((name, episode.scope[name]) for name in SCOPE_IDS if name in episode.scope)
