"""Extraction: what conversations said, and texts that were given, becomes facts.

A batch is read, the extractor is called without any transaction, and its answer is stored together with the position
up to which was read. So a crash at any moment repeats a call at most: nothing is stored twice, nothing is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from perdure.core.errors import ModelReplyInvalid, ModelTimeout
from perdure.core.facts.extraction import NO_ANSWER, Extraction, Extractor, Summarizer
from perdure.core.facts.values import Fact, Graph
from perdure.core.ids import AgentId
from perdure.domain.facts.batches import LoadedBatch, load_batch, load_text_batch
from perdure.engine.facts.communities import summarize_due
from perdure.engine.facts.nearness import find_same, show_near
from perdure.engine.facts.plan import plan_extraction
from perdure.engine.facts.store import pass_over, store_plan
from perdure.engine.ports import Ports, in_effect
from perdure.engine.run.log import Line
from perdure.engine.workers.pauses import AT_ONCE, Piece

Load = Callable[[], Awaitable[LoadedBatch | None]]

BATCHES_MAX = 1_000
"""The most batches of one conversation that are extracted at once; the rest follows at the next pause."""


async def extract_due(ports: Ports, line: Line, *, rest: bool = False, piece: Piece | None = None) -> Sequence[Fact]:
    """Extract the batches of a conversation that are due, with `rest` also one that is not full, the passages of the
    agent's own archive, and what else waits in its graph; return the new facts.

    Args:
        piece: opens a piece of the work in the background, which ends where somebody asks for the same; the extractor
            is called outside of it. None: somebody asks, and waits.
    Raises: ModelError, ModelNotFound, NotFound, StoreError.
    """
    if piece is None:
        with ports.waiting.take(line), ports.background.foreground.person():
            return await _extract_all(ports, line, AT_ONCE, lambda: False, rest=rest)
    return await _extract_all(ports, line, piece, lambda: line in ports.waiting.taken, rest=rest)


async def _extract_all(
    ports: Ports, line: Line, piece: Piece, is_taken: Callable[[], bool], *, rest: bool
) -> Sequence[Fact]:
    """Extract batch by batch until nothing is due, or somebody else does it. Raises: as `extract_due`."""
    facts: list[Fact] = []

    async def load() -> LoadedBatch | None:
        async with piece():
            return None if is_taken() else await ports.store.read(load_batch, *line, rest=rest)

    for _ in range(BATCHES_MAX):
        loaded = await load()
        found = None if loaded is None else await _extract(ports, loaded, piece, None if piece is AT_ONCE else load)
        if found is None:
            break
        facts += found
    if is_taken():
        return facts
    await summarize_due(ports, line[0], piece)
    return facts


async def extract_texts(ports: Ports, graph: Graph, agent_id: AgentId | None) -> Sequence[Fact]:
    """Extract the texts and documents that wait in a graph, with the settings of an agent, if there is one; return the
    new facts. Raises: ModelError, ModelNotFound, NotFound, StoreError."""
    facts: list[Fact] = []
    with ports.background.foreground.person():
        for _ in range(BATCHES_MAX):
            loaded = await ports.store.read(load_text_batch, graph, agent_id)
            found = None if loaded is None else await _extract(ports, loaded)
            if found is None:
                break
            facts += found
    return facts


async def pass_over_batch(ports: Ports, line: Line, *, rest: bool) -> int:
    """Leave out the next batch of a conversation, and count its turns as dropped; return how many.

    Raises: NotFound, StoreError.
    """
    loaded = await ports.store.read(load_batch, *line, rest=rest)
    if loaded is None:
        return 0
    return await ports.store.write(pass_over, loaded, ids=ports.ids, at=ports.clock.now())


async def _extract(
    ports: Ports, loaded: LoadedBatch, piece: Piece = AT_ONCE, load: Load | None = None
) -> Sequence[Fact] | None:
    """Extract one batch and store what it says; return the new facts. None: facts are off, or nothing is left to do.

    Args:
        load: loads the batch again if a model may be asked only later; None: somebody waits.
    Raises: ModelError, ModelNotFound, NotFound, StoreError; PutBack, if nobody waits.
    """
    model = "" if loaded.agent is None else in_effect(loaded.agent, ports.models).model
    extractor = ports.find_extractor(loaded.settings.extractor, model)
    if extractor is None:
        return None
    if load is not None and isinstance(extractor, Summarizer) and ports.yields(extractor.handle):
        async with ports.slot(extractor.handle):
            later = await load()
            if later is None:
                return None
            loaded, extraction = await _ask(ports, later, extractor)
    else:
        loaded, extraction = await _ask(ports, loaded, extractor)
    batch = loaded.batch
    if loaded.graph is not None and ports.search.has_embedder:
        is_shown = isinstance(extractor, Summarizer)
        batch, extraction = await find_same(ports, loaded.graph, batch, extraction, shown=is_shown)
        loaded = replace(loaded, batch=batch)
    async with piece():
        return await ports.store.write(
            store_plan,
            loaded,
            plan_extraction(batch, extraction),
            extraction=extraction,
            ids=ports.ids,
            at=ports.clock.now(),
        )


async def _ask(ports: Ports, loaded: LoadedBatch, extractor: Extractor) -> tuple[LoadedBatch, Extraction]:
    """Call the extractor; return the batch as it was shown, and the answer. Raises: ModelError, StoreError."""
    batch = loaded.batch
    if not any(turn.text.strip() for turn in batch.turns):
        return loaded, Extraction()
    if loaded.graph is not None and ports.search.has_embedder and isinstance(extractor, Summarizer):
        batch = await show_near(ports, loaded.graph, batch)  # patterns go by names alone
    handle = extractor.handle if isinstance(extractor, Summarizer) else ""
    limit_s = ports.limit_s(handle, ports.settings.extraction_timeout_s)
    try:
        async with asyncio.timeout(limit_s):
            extraction = await extractor.extract(batch)
    except TimeoutError as error:
        raise ModelTimeout(f"the extractor took longer than {limit_s or 0:g} s") from error
    if NO_ANSWER in extraction.dropped and not extraction.entities:
        raise ModelReplyInvalid(f"{extraction.model} answered the extraction with no JSON")
    return replace(loaded, batch=batch), extraction
