"""Extraction in the background: what conversations said, and texts that were given, becomes facts.

A batch is read, the extractor is called without any transaction, and its answer is stored together with the position
up to which was read. So a crash at any moment repeats a call at most: nothing is stored twice, nothing is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from perdure.core.errors import ModelError, ModelNotFound, PerdureError, StoreError
from perdure.core.facts.extraction import Extractor
from perdure.core.facts.values import Fact, Graph
from perdure.core.ids import AgentId
from perdure.domain.facts.batches import LoadedBatch, extraction_due, load_batch, load_text_batch
from perdure.domain.facts.settings import AgentFacts
from perdure.engine.facts.plan import Plan, plan_extraction
from perdure.engine.facts.store import store_plan
from perdure.engine.ports import Ports
from perdure.engine.run.log import Line
from perdure.engine.workers.lines import LineWorker

log = logging.getLogger(__name__)

BATCHES_MAX = 1_000
"""The most batches of one conversation that are extracted at once; the rest follows after its next run."""

FindExtractor = Callable[[AgentFacts, str], Extractor]
"""Returns the extractor of an agent's setting and model."""


def extraction_worker(ports: Ports, find_extractor: FindExtractor) -> LineWorker:
    """Return the worker that extracts what is due in a conversation."""

    async def work(line: Line) -> None:
        try:
            await extract_due(ports, find_extractor, line)
        except StoreError as error:  # what is in the log still is found to be due after the next run
            log.warning("extraction of conversation %s of %s: %s", line[1], line[0], error)

    return LineWorker(work)


async def extract_due(ports: Ports, find_extractor: FindExtractor, line: Line, *, rest: bool = False) -> Sequence[Fact]:
    """Extract the batches of a conversation that are due, with `rest` also one that is not full; return the new facts.
    What fails is logged, and is due again after the next run. Raises: StoreError."""
    facts: list[Fact] = []
    try:
        for _ in range(BATCHES_MAX):
            if not await ports.store.read(extraction_due, *line, rest=rest):
                break
            loaded = await ports.store.read(load_batch, *line)
            if loaded is None:
                break
            facts += await _extract(ports, find_extractor, loaded, line[0])
    except StoreError:
        raise
    except (ModelError, ModelNotFound) as error:
        log.warning("facts of conversation %s of %s wait: %s", line[1], line[0], error)
    except PerdureError as error:
        log.warning("extraction of conversation %s of %s: %s", line[1], line[0], error)
    except Exception:
        log.exception("extraction of conversation %s of %s stopped at a defect", line[1], line[0])
    return facts


async def extract_texts(
    ports: Ports, find_extractor: FindExtractor, graph: Graph, settings: AgentFacts, agent_id: AgentId | None
) -> Sequence[Fact]:
    """Extract the texts and documents that wait in a graph; return the new facts. Raises: ModelError, StoreError."""
    facts: list[Fact] = []
    for _ in range(BATCHES_MAX):
        loaded = await ports.store.read(load_text_batch, graph, settings)
        if loaded is None:
            break
        facts += await _extract(ports, find_extractor, loaded, agent_id)
    return facts


async def _extract(
    ports: Ports, find_extractor: FindExtractor, loaded: LoadedBatch, agent_id: AgentId | None
) -> Sequence[Fact]:
    """Extract one batch and store what it says; return the new facts. Raises: ModelError, PerdureError."""
    if not loaded.batch.turns:
        plan, model = Plan(), ""
    else:
        handle = ""
        if agent_id is not None:
            handle = (await ports.store.read(lambda tx: tx.agents.get(agent_id))).model
        extraction = await find_extractor(loaded.settings, handle).extract(loaded.batch)
        plan, model = plan_extraction(loaded.batch, extraction), extraction.model
    origin = {"type": "extraction", "model": model}
    return await ports.store.write(store_plan, loaded, plan, origin=origin, ids=ports.ids, at=ports.clock.now())
