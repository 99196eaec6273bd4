"""Summaries: asked of the agent's own model, checked, and made by our own code where that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ParamSpec, TypeVar

from perdure.context.retrieval.stubs import stub_chars
from perdure.context.window.extract import extract, merge_texts, render_extract
from perdure.context.window.plan import LEAST_SUMMARY, Evict, Merge
from perdure.context.window.summary import SummaryRejected, add_missing, check_summary, summary_request, transcript
from perdure.core.errors import LeaseLost, ModelError, ModelNotFound, PerdureError, StoreError
from perdure.core.messages import text_of
from perdure.core.models import Model, ModelReply, ModelRequest
from perdure.core.nodes import MadeBy, message_handle, node_handle
from perdure.core.ports import TokenCounter
from perdure.core.runs import Usage
from perdure.engine.ports import Ports
from perdure.engine.run.interrupts import is_cancelled
from perdure.engine.run.leases import holding
from perdure.engine.run.progress import RoomPlan

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SOURCE_SHARE = 0.7
"""Of the model's budget, what a summariser is shown; the rest is for what it is told, and a margin of the estimate."""

LARGE_CHARS = 100_000
"""Reading so much takes long enough for others to notice, so it is done in a thread."""

ASKED_SHARE = 0.75
"""Of a summary's size, what the model is asked for. What it left out of what must not be lost comes behind."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The text of a node: `made_by` the model, or by our own code and then `rejected` says why."""

    text: str
    made_by: MadeBy
    rejected: str | None = None
    usage: Usage = field(default_factory=Usage)


async def summarise(room: RoomPlan, smaller: Evict | Merge, ports: Ports) -> Summary:
    """One call of the agent's model at most; whatever comes of it, a summary within the plan's size.

    Raises: Interrupted: the run was asked to stop; LeaseLost, StoreError.
    """
    if smaller.summary_tokens <= LEAST_SUMMARY:  # too little for a model to say anything in
        return Summary(extract_summary(smaller, ports.counter), "extract", "too_small")
    large = isinstance(smaller, Evict) and sum(map(stub_chars, smaller.messages)) > LARGE_CHARS
    work = asyncio.to_thread if large else _call
    source = await work(_source, room, smaller, ports)
    limit, counter = smaller.summary_tokens, ports.counter
    asked = max(1, int(limit * ASKED_SHARE))
    request = replace(
        summary_request(room.agent.model, source, previous=_previous(room, smaller), max_summary_tokens=asked),
        purpose="summary",
    )
    usage = Usage()
    try:
        reply = await _reply(room, request, ports)
        usage = reply.usage
        said = text_of(reply.parts)
        text = await work(check_summary, said, source=source, request=request, max_tokens=limit, counter=counter)
    except SummaryRejected as rejected:
        return Summary(await work(extract_summary, smaller, ports.counter), "extract", rejected.reason, usage)
    except (ModelError, TimeoutError) as error:
        why = f"{type(error).__name__}: {error}"
        return Summary(await work(extract_summary, smaller, ports.counter), "extract", why, usage)
    if isinstance(smaller, Evict):
        missing = await work(extract, smaller.messages)
        text = add_missing(text, missing, max_tokens=limit, counter=counter)
    return Summary(text, "model", None, usage)


async def _call(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns, in this thread; `asyncio.to_thread` is the other choice."""
    return work(*args, **kwargs)


async def _reply(room: RoomPlan, request: ModelRequest, ports: Ports) -> ModelReply:
    """The model's answer. Raises: ModelError, TimeoutError."""
    model = ports.models.find(room.agent.model)
    if model is None:
        raise ModelNotFound(room.agent.model, known=ports.models.handles())
    async with holding(room.log.run, ports):
        try:
            async with asyncio.timeout(ports.settings.summary_timeout_s):
                return await _whole(model, request)
        except TimeoutError:
            raise TimeoutError(f"no summary within {ports.settings.summary_timeout_s:g} s") from None
        except (LeaseLost, StoreError, ModelError):
            raise
        except PerdureError as error:
            raise ModelError(str(error)) from error
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise ModelError("the model gave its own task up") from None
        except Exception as error:  # what an adapter did not foresee must not stop the run: there is the extract
            raise ModelError(f"{type(error).__name__}: {error}") from error


async def _whole(model: Model, request: ModelRequest) -> ModelReply:
    reply: ModelReply | None = None
    async for piece in model.respond(request):
        if isinstance(piece, ModelReply):
            reply = piece
    return reply if reply is not None else ModelReply(parts=())


def _source(room: RoomPlan, smaller: Evict | Merge, ports: Ports) -> str:
    """What is summarised, as the summariser is shown it."""
    if isinstance(smaller, Merge):
        return "\n\n".join(
            f"{node_handle(node.seq)} ({message_handle(node.from_message_seq, node.upto_message_seq)}): {node.text}"
            for node in smaller.nodes
        )
    return transcript(smaller.messages, max_tokens=int(room.budget_tokens * SOURCE_SHARE), counter=ports.counter)


def _previous(room: RoomPlan, smaller: Evict | Merge) -> str:
    """The summary that stands before what is summarised."""
    return room.nodes[-1].text if isinstance(smaller, Evict) and room.nodes else ""


def extract_summary(smaller: Evict | Merge, counter: TokenCounter) -> str:
    """The text of a node that no model wrote, within the plan's size."""
    limit = smaller.summary_tokens
    if isinstance(smaller, Merge):
        text = merge_texts(smaller.nodes, max_tokens=limit, counter=counter)
    else:
        text = render_extract(extract(smaller.messages), max_tokens=limit, counter=counter)
    return text or "(no words)"
