"""Extraction: what conversations said, and texts that were given, becomes facts.

A batch is read, the extractor is called without any transaction, and its answer is stored together with the position
up to which was read, if all that was shown is still so. So a crash at any moment repeats a call at most: nothing is
stored twice, nothing is left out, and nothing comes from what was taken away meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from perdure.core.conversations import ConversationKey
from perdure.core.errors import Conflict, ModelError, ModelReplyInvalid, NotFound, StoreError
from perdure.core.ids import AgentId
from perdure.engine.ports import with_next_model
from perdure.engine.reading import AGAIN_MAX
from perdure.engine.workers.background import AT_ONCE, CallPostponed, Piece
from perdure.features.facts.extraction.communities import summarize_due
from perdure.features.facts.extraction.extractors import FactPorts
from perdure.features.facts.extraction.nearness import find_same, show_near
from perdure.features.facts.extraction.plan import plan_extraction
from perdure.features.facts.extraction.store import pass_over, store_plan
from perdure.features.facts.extraction.waiting import TRIES, WHOLE_TRIES
from perdure.features.facts.tables import Episodes, Facts, Graphs
from perdure.features.facts.units.batches import LoadedBatch, load_batch, load_text_batch
from perdure.features.facts.values.extraction import NO_ANSWER, Extraction, Extractor, Summarizer
from perdure.features.facts.values.facts import Episode, Fact, Graph
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

Load = Callable[[], Awaitable[LoadedBatch | None]]

BATCHES_MAX = 1_000
"""The most batches of one conversation that are extracted at once; the rest follows at the next pause."""


async def extract_due(
    ports: FactPorts, conversation_key: ConversationKey, *, rest: bool = False, piece: Piece | None = None
) -> Sequence[Fact]:
    """Extract the batches of a conversation that are due; return the new facts.

    Args:
        conversation_key: agent and number of the conversation.
        rest: whether also a batch that is not full, passages of the agent's own archive, and texts that wait in its
            graph.
        piece: makes a context for each step of background work, in which it ends if a caller asks for the same
            conversation; the extractor is called outside of it. None: a caller asks, and waits.
    Raises: ModelError, ModelNotFound, NotFound, StoreError; Conflict: what is read changes all the time.
    """
    if piece is None:
        with ports.waiting.take(conversation_key), ports.background.foreground.person():
            return await _extract_all(ports, conversation_key, AT_ONCE, lambda: False, rest=rest)
    return await _extract_all(
        ports, conversation_key, piece, lambda: conversation_key in ports.waiting.taken, rest=rest
    )


async def _extract_all(
    ports: FactPorts, conversation_key: ConversationKey, piece: Piece, is_taken: Callable[[], bool], *, rest: bool
) -> Sequence[Fact]:
    """Extract until nothing is due, or `is_taken` says that another task does. Others, and errors: as `extract_due`."""
    facts: list[Fact] = []

    async def load() -> LoadedBatch | None:
        """Load the next batch, unless another task extracts the conversation."""
        async with piece():
            return None if is_taken() else await ports.store.read(load_batch, *conversation_key, rest=rest)

    for _ in range(BATCHES_MAX):
        try:
            found = await _extract(ports, load, piece)
        except (NotFound, StoreError, CallPostponed):
            raise
        except Exception as error:
            if may_pass(error):
                raise
            count = await ports.store.write(
                lambda tx: tx.of(Episodes).count_line_tries(*conversation_key, at=ports.clock.now())
            )
            if count < WHOLE_TRIES:
                raise
            turns = await extract_singly(ports, conversation_key, rest=rest, last=False)
            log.warning(
                "%d turns of conversation %s of %s are left out of facts: %s",
                turns,
                conversation_key[1],
                conversation_key[0],
                error,
            )
            continue
        if found is None:
            break
        facts += found
    if rest and not is_taken():
        try:
            facts += await _extract_waiting(
                ports, lambda tx: tx.of(Graphs).find_by_agent(conversation_key[0]), conversation_key[0], piece, is_taken
            )
        except ModelError as error:  # texts that programs gave must not fail this conversation's extraction
            if may_pass(error) and piece is not AT_ONCE:
                raise
            log.warning("texts of %s wait: %s: %s", conversation_key[0], type(error).__name__, error)
            ports.waiting.note(conversation_key)
    if is_taken():
        return facts
    await summarize_due(ports, conversation_key[0], piece)
    return facts


async def extract_texts(
    ports: FactPorts, graph: Graph, agent_id: AgentId | None, own: Sequence[Episode]
) -> Sequence[Fact]:
    """Extract these texts; return the new facts. Then extract some that were left; errors of those are logged.

    Args:
        agent_id: whose settings count; None: the defaults.
        own: the episodes of the texts, all of the graph.
    Raises: ModelError, ModelNotFound, NotFound, StoreError; Conflict: what is read changes all the time.
    """
    facts: list[Fact] = []
    seqs = [episode.seq for episode in own]
    open_seqs, loaded = set(seqs), None

    async def load() -> LoadedBatch | None:
        """Load the texts that are still to be extracted."""
        nonlocal loaded
        loaded = await ports.store.read(load_text_batch, graph, agent_id, own=seqs, timezone=ports.settings.timezone)
        return loaded

    with ports.background.foreground.person():
        with ports.waiting.take_texts(episode.id for episode in own):
            try:
                while (found := await _extract(ports, load)) is not None:
                    facts += found
                    open_seqs -= set() if loaded is None else {episode.seq for episode in loaded.episodes}
            except Exception:
                if agent_id is not None:
                    ports.waiting.note((agent_id, 0))  # the background comes back to it
                raise
            if open_seqs:  # another task extracted these first
                facts += await ports.store.read(lambda tx: tx.of(Facts).list_by_episodes(graph.id, sorted(open_seqs)))
        try:
            await _extract_waiting(ports, lambda tx: graph, agent_id, batches_max=1)
        except Exception as error:
            log.warning("texts of %s wait: %s: %s", graph.id, type(error).__name__, error)
    return facts


async def _extract_waiting(
    ports: FactPorts,
    find: Callable[[Tx], Graph | None],
    agent_id: AgentId | None,
    piece: Piece = AT_ONCE,
    is_taken: Callable[[], bool] = lambda: False,
    *,
    batches_max: int = BATCHES_MAX,
) -> Sequence[Fact]:
    """Extract waiting texts of a graph that no other task extracts, up to `batches_max` batches; return the new facts.

    Args:
        find: loads the graph; None: there is none.
        agent_id: whose settings count; None: the defaults.
        is_taken: whether another task extracts this conversation, so that this one ends.
    Raises: as `extract_due`.
    """
    facts: list[Fact] = []
    waiting = ports.waiting

    def read(tx: Tx) -> LoadedBatch | None:
        """Load the next texts that no other task is extracting; None: there are none."""
        if (graph := find(tx)) is None:
            return None
        without, timezone = frozenset(waiting.texts), ports.settings.timezone
        return load_text_batch(tx, graph, agent_id, without=without, timezone=timezone)

    for _ in range(batches_max):
        with contextlib.ExitStack() as taken:

            async def load() -> LoadedBatch | None:
                """Load the next texts, and keep other tasks from them until `taken` is closed."""
                taken.close()  # `_extract` calls this again after a change
                async with piece():
                    loaded = None if is_taken() else await ports.store.read(read)
                ids = () if loaded is None else [episode.id for episode in loaded.episodes]
                if not ids or not waiting.texts.keys().isdisjoint(ids):
                    return None
                taken.enter_context(waiting.take_texts(ids))
                return loaded

            found = await _extract(ports, load, piece)
        if found is None:
            break
        facts += found
    return facts


async def extract_singly(ports: FactPorts, conversation_key: ConversationKey, *, rest: bool, last: bool) -> int:
    """Extract the turns of a conversation's next batch one by one; skip those that fail, and return how many. `rest`:
    as in `load_batch`. At the `last` try a turn is skipped even after an error that may pass, such as an unreachable
    model. Raises: ModelError, NotFound, StoreError."""

    async def load(most: int | None = 1) -> LoadedBatch | None:
        """Load the next turn, or up to `most` turns."""
        return await ports.store.read(load_batch, *conversation_key, rest=rest, most=most)

    whole = await load(None)
    left_out, turns = 0, 0 if whole is None else len(whole.batch.turns)
    for _ in range(turns):
        found = None
        try:
            if turns > 1:
                found = await _extract(ports, load)
        except (NotFound, StoreError):
            raise
        except Exception as error:
            if may_pass(error) and not last:
                raise
            log.info(
                "a turn of conversation %s of %s can't be extracted: %s",
                conversation_key[1],
                conversation_key[0],
                error,
            )
        if found is None and (loaded := await load()) is not None:
            left_out += await ports.store.write(pass_over, loaded, ids=ports.ids, at=ports.clock.now())
    return left_out


def may_pass(error: Exception) -> bool:
    """Return whether the same extraction may succeed later: the error does not come from the text that it reads."""
    return isinstance(error, Conflict) or (isinstance(error, ModelError) and error.retryable)


async def _extract(ports: FactPorts, load: Load, piece: Piece = AT_ONCE) -> Sequence[Fact] | None:
    """Load one batch, extract it, and store its facts; return the new ones. None: facts are off, or `load` found
    nothing. What changes while an extractor reads it is loaded and extracted again, up to `AGAIN_MAX` times. Raises:
    ModelError, ModelNotFound, NotFound, StoreError; Conflict; CallPostponed, if no caller waits (`piece`)."""
    for _ in range(AGAIN_MAX):
        loaded = await load()
        if loaded is None:
            return None
        model = "" if loaded.agent is None else with_next_model(loaded.agent, ports.models).model
        extractor = ports.find_extractor(loaded.settings.extractor, model)
        if extractor is None:
            return None
        try:
            if piece is not AT_ONCE and isinstance(extractor, Summarizer) and ports.yields(extractor.handle):
                async with ports.slot(extractor.handle):
                    later = await load()
                    if later is None:
                        return None
                    loaded, extraction = await _call(ports, later, extractor)
            else:
                loaded, extraction = await _call(ports, loaded, extractor)
        except ModelError as error:
            if loaded.conversation_key is None and not may_pass(error) and await _passes_over(ports, loaded):
                return ()
            raise
        batch = loaded.batch
        if loaded.graph is not None and ports.search.has_embedder:
            is_shown = isinstance(extractor, Summarizer)
            batch, extraction = await find_same(ports, loaded.graph, batch, extraction, shown=is_shown)
            loaded = replace(loaded, batch=batch)
        plan = plan_extraction(batch, extraction)
        async with piece():
            facts = await ports.store.write(
                store_plan, loaded, plan, extraction=extraction, ids=ports.ids, at=ports.clock.now()
            )
        if facts is not None:
            return facts
    raise Conflict(f"what is to be extracted has changed {AGAIN_MAX} times meanwhile: extract it again")


async def _passes_over(ports: FactPorts, loaded: LoadedBatch) -> bool:
    """Count a failure; return whether a text failed too often and was given up. Raises: StoreError."""
    graph_id, seqs = loaded.episodes[0].graph_id, [episode.seq for episode in loaded.episodes]
    if len(seqs) > 1 or loaded.episodes[0].tries + 1 < TRIES:
        await ports.store.write(lambda tx: tx.of(Episodes).count_tries(graph_id, seqs))
        return False
    await ports.store.write(pass_over, loaded, ids=ports.ids, at=ports.clock.now())
    log.warning("a text of %s is left out of facts after %d tries", graph_id, TRIES)
    return True


async def _call(ports: FactPorts, loaded: LoadedBatch, extractor: Extractor) -> tuple[LoadedBatch, Extraction]:
    """Call the extractor; return the batch as it was shown, and the answer. Raises: ModelError, StoreError."""
    batch = loaded.batch
    if not any(turn.text.strip() for turn in batch.turns):
        return loaded, Extraction()
    if loaded.graph is not None and ports.search.has_embedder and isinstance(extractor, Summarizer):
        batch = await show_near(ports, loaded.graph, batch)  # patterns go by names alone
    handle = extractor.handle if isinstance(extractor, Summarizer) else ""
    limit_s = ports.limit_s(handle, ports.settings.extraction_timeout_s)
    extraction = await extractor.extract(replace(batch, limit_s=limit_s))
    if NO_ANSWER in extraction.dropped and not extraction.entities:
        raise ModelReplyInvalid(f"{extraction.model} answered the extraction with no JSON")
    return replace(loaded, batch=batch), extraction
