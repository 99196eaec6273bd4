"""Extraction: what conversations said, and texts that were given, becomes facts.

A batch is read, the extractor is called without any transaction, and its answer is stored together with the position
up to which was read. So a crash at any moment repeats a call at most: nothing is stored twice, nothing is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from perdure.core.errors import ModelReplyInvalid, ModelTimeout
from perdure.core.facts.extraction import NO_ANSWER, Extraction, Summarizer
from perdure.core.facts.values import Fact, Graph
from perdure.core.ids import AgentId
from perdure.domain.facts.batches import LoadedBatch, load_batch, load_text_batch
from perdure.engine.facts.communities import summarize_due
from perdure.engine.facts.model_extractor import ModelExtractor
from perdure.engine.facts.nearness import find_same, show_near
from perdure.engine.facts.plan import plan_extraction
from perdure.engine.facts.store import pass_over, store_plan
from perdure.engine.ports import Ports, in_effect
from perdure.engine.run.log import Line
from perdure.engine.workers.pauses import Piece

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
        with ports.waiting.take(line):
            return await _extract_all(ports, line, contextlib.nullcontext, lambda: False, rest=rest)
    return await _extract_all(ports, line, piece, lambda: line in ports.waiting.taken, rest=rest)


async def _extract_all(
    ports: Ports, line: Line, piece: Piece, is_taken: Callable[[], bool], *, rest: bool
) -> Sequence[Fact]:
    """Extract batch by batch until nothing is due, or somebody else does it. Raises: as `extract_due`."""
    facts: list[Fact] = []
    for _ in range(BATCHES_MAX):
        async with piece():
            if is_taken():
                return facts
            loaded = await ports.store.read(load_batch, *line, rest=rest)
        found = None if loaded is None else await _extract(ports, loaded, piece)
        if found is None:
            break
        facts += found
    await summarize_due(ports, line[0], piece)
    return facts


async def extract_texts(ports: Ports, graph: Graph, agent_id: AgentId | None) -> Sequence[Fact]:
    """Extract the texts and documents that wait in a graph, with the settings of an agent, if there is one; return the
    new facts. Raises: ModelError, ModelNotFound, NotFound, StoreError."""
    facts: list[Fact] = []
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


async def _extract(ports: Ports, loaded: LoadedBatch, piece: Piece = contextlib.nullcontext) -> Sequence[Fact] | None:
    """Extract one batch and store what it says; return the new facts. None: facts are off.

    Raises: ModelError, ModelNotFound, NotFound, StoreError.
    """
    model = "" if loaded.agent is None else in_effect(loaded.agent, ports.models).model
    extractor = ports.find_extractor(loaded.settings.extractor, model)
    if extractor is None:
        return None
    extraction, batch = Extraction(), loaded.batch
    by_meaning = loaded.graph is not None and ports.search.has_embedder
    is_shown = by_meaning and isinstance(extractor, Summarizer)  # patterns go by names alone
    if any(turn.text.strip() for turn in batch.turns):
        if loaded.graph is not None and is_shown:
            batch = await show_near(ports, loaded.graph, batch)
        handle = extractor.handle if isinstance(extractor, ModelExtractor) else ""
        limit_s = ports.limit_s(handle, ports.settings.extraction_timeout_s)
        try:
            async with asyncio.timeout(limit_s):
                extraction = await extractor.extract(batch)
        except TimeoutError as error:
            raise ModelTimeout(f"the extractor took longer than {limit_s or 0:g} s") from error
        if NO_ANSWER in extraction.dropped and not extraction.entities:
            raise ModelReplyInvalid(f"{extraction.model} answered the extraction with no JSON")
    if loaded.graph is not None and by_meaning:
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
