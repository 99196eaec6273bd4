"""Automatic capture: after a run has ended, what its conversation collected is stored as passages, in the background.

A crash loses nothing: what was not stored is still in the log, and is found to be due after the next run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from perdure.core.errors import PerdureError, StoreError
from perdure.core.ids import AgentId
from perdure.domain.agents.capture import capture, capture_due
from perdure.engine.ports import Ports
from perdure.engine.run.log import Line
from perdure.engine.workers.lines import LineWorker

log = logging.getLogger(__name__)


def capture_worker(ports: Ports) -> LineWorker:
    """Return the worker that captures what is due in a conversation."""

    async def work(line: Line) -> None:
        try:
            await _capture_due(ports, line)
        except StoreError as error:  # what is in the log still is found to be due after the next run
            log.warning("capture of conversation %s of %s: %s", line[1], line[0], error)

    return LineWorker(work)


async def capture_rest(ports: Ports, agent_id: AgentId, conversation_seqs: Sequence[int]) -> None:
    """Capture what these conversations collected, also below the threshold. What can't be captured, such as for lack of
    an archive, is logged. Raises: StoreError."""
    for seq in conversation_seqs:
        await _capture_due(ports, (agent_id, seq), rest=True)


async def _capture_due(ports: Ports, line: Line, *, rest: bool = False) -> None:
    """Store what is due for capture in a conversation. Raises: StoreError."""
    try:
        upto_seq = await ports.store.read(capture_due, *line, force=rest)
        if upto_seq is not None:
            while await ports.store.write(capture, *line, upto_seq, ids=ports.ids, at=ports.clock.now()):
                pass
    except StoreError:
        raise
    except PerdureError as error:
        log.warning("capture of conversation %s of %s: %s", line[1], line[0], error)
    except Exception:
        log.exception("capture of conversation %s of %s stopped at a defect", line[1], line[0])
