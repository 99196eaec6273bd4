"""Extraction in the background: what conversations said, and texts that were given, becomes facts.

A batch is read, the extractor is called without any transaction, and its answer is stored together with the position
up to which was read. So a crash at any moment repeats a call at most: nothing is stored twice, nothing is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from perdure.core.errors import ModelError, ModelNotFound, PerdureError, StoreError
from perdure.core.facts.extraction import Extraction
from perdure.core.facts.values import Fact, Graph
from perdure.core.ids import AgentId
from perdure.domain.facts.batches import LoadedBatch, extraction_due, load_batch, load_text_batch
from perdure.engine.facts.communities import summarize_due
from perdure.engine.facts.forgetting import ForgettingWork
from perdure.engine.facts.plan import plan_extraction
from perdure.engine.facts.store import store_plan
from perdure.engine.ports import Ports, in_effect
from perdure.engine.run.log import Line
from perdure.engine.workers.lines import LineWorker

log = logging.getLogger(__name__)

BATCHES_MAX = 1_000
"""The most batches of one conversation that are extracted at once; the rest follows after its next run."""


def extraction_worker(ports: Ports) -> LineWorker:
    """Return the worker that extracts what is due in a conversation, and then lets facts fade."""
    forgetting = ForgettingWork(ports)

    async def work(line: Line) -> None:
        try:
            await extract_due(ports, line)
            await forgetting.tidy_due(line[0])
        except StoreError as error:  # what is in the log still is found to be due after the next run
            log.warning("extraction of conversation %s of %s: %s", line[1], line[0], error)

    return LineWorker(work)


async def extract_due(ports: Ports, line: Line, *, rest: bool = False) -> Sequence[Fact]:
    """Extract the batches of a conversation that are due, with `rest` also one that is not full; return the new facts.
    What fails is logged, and is due again after the next run. Raises: StoreError."""
    facts: list[Fact] = []
    try:
        for _ in range(BATCHES_MAX):
            if not await ports.store.read(extraction_due, *line, rest=rest):
                break
            loaded = await ports.store.read(load_batch, *line)
            found = None if loaded is None else await _extract(ports, loaded)
            if found is None:
                break
            facts += found
        await summarize_due(ports, line[0])
    except StoreError:
        raise
    except (ModelError, ModelNotFound) as error:
        log.warning("facts of conversation %s of %s wait: %s", line[1], line[0], error)
    except PerdureError as error:
        log.warning("extraction of conversation %s of %s: %s", line[1], line[0], error)
    except Exception:
        log.exception("extraction of conversation %s of %s stopped at a defect", line[1], line[0])
    return facts


async def extract_texts(ports: Ports, graph: Graph, agent_id: AgentId | None) -> Sequence[Fact]:
    """Extract the texts and documents that wait in a graph, with the settings of an agent, if there is one; return the
    new facts. Raises: ModelError, NotFound, StoreError."""
    facts: list[Fact] = []
    for _ in range(BATCHES_MAX):
        loaded = await ports.store.read(load_text_batch, graph, agent_id)
        found = None if loaded is None else await _extract(ports, loaded)
        if found is None:
            break
        facts += found
    return facts


async def _extract(ports: Ports, loaded: LoadedBatch) -> Sequence[Fact] | None:
    """Extract one batch and store what it says; return the new facts. None: facts are off.

    Raises: ModelError, PerdureError.
    """
    model = "" if loaded.agent is None else in_effect(loaded.agent, ports.models).model
    extractor = ports.find_extractor(loaded.settings.extractor, model)
    if extractor is None:
        return None
    extraction = await extractor.extract(loaded.batch) if loaded.batch.turns else Extraction()
    return await ports.store.write(
        store_plan,
        loaded,
        plan_extraction(loaded.batch, extraction),
        origin={"type": "extraction", "model": extraction.model},
        ids=ports.ids,
        at=ports.clock.now(),
    )
