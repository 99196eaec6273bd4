"""Summaries: written by a model and checked, or extracted by our own code if that fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ParamSpec, TypeVar

from perdure.context.retrieval.stubs import stub_chars
from perdure.context.window.extract import extract, merge_texts, render_extract
from perdure.context.window.plan import LEAST_SUMMARY, Evict, Merge
from perdure.context.window.summary import SummaryRejected, add_missing, check_summary, transcript
from perdure.context.window.summary_request import summary_request
from perdure.core.agents import Agent
from perdure.core.conversations import CompactionSettings
from perdure.core.errors import LeaseLost, ModelError, ModelNotFound, PerdureError, StoreError
from perdure.core.messages import text_of
from perdure.core.models import Model, ModelReply, ModelRequest, Models
from perdure.core.nodes import MadeBy, SummaryNode, message_handle, node_handle
from perdure.core.ports import TokenCounter
from perdure.core.runs import Run, Usage
from perdure.engine.ports import Ports
from perdure.engine.run.interrupts import is_cancelled
from perdure.engine.run.leases import holding

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SOURCE_SHARE = 0.7
"""The share of the model's budget for the text to summarise; the rest is for instructions and estimation errors."""

LARGE_CHARS = 100_000
"""Reading so much takes long enough for others to notice, so it is done in a thread."""

REQUEST_SHARE = 0.75
"""The share of a summary's size that the model is asked for. Facts that it left out are added behind."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The text of a node, made by the model or by our own code; then `rejected` says why. `failed`: the model gave no
    answer at all."""

    text: str
    made_by: MadeBy
    rejected: str | None = None
    usage: Usage = field(default_factory=Usage)
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTask:
    """Who writes a summary, and with what.

    Args:
        agent: whose conversation it is.
        settings: who writes, and how.
        nodes: the summary nodes in view, oldest first.
        budget_tokens: what the model's window holds.
        run: whose lease is held meanwhile; None: no run needs it.
    """

    agent: Agent
    settings: CompactionSettings
    nodes: Sequence[SummaryNode]
    budget_tokens: int
    run: Run | None = None

    def model(self, models: Models) -> str:
        """The handle of the model that writes; the agent's own where the other is not there."""
        handle = self.settings.model
        is_own = handle is None or (self.settings.mode or "").startswith("self") or models.find(handle) is None
        return self.agent.model if is_own or handle is None else handle


async def summarise(task: SummaryTask, removal: Evict | Merge, ports: Ports) -> Summary:
    """A summary within the plan's size and the settings' characters, by at most one call of a model.

    Raises: Interrupted: the run was asked to stop; LeaseLost, StoreError.
    """
    summary = await _summarise(task, removal, ports)
    return replace(summary, text=task.settings.clip(summary.text))


async def _summarise(task: SummaryTask, removal: Evict | Merge, ports: Ports) -> Summary:
    """A summary within the plan's size. Raises: Interrupted, LeaseLost, StoreError."""
    if removal.summary_tokens <= LEAST_SUMMARY:  # too little for a model to say anything in
        return Summary(extract_summary(removal, ports.counter), "extract", "too_small")
    large = isinstance(removal, Evict) and sum(map(stub_chars, removal.messages)) > LARGE_CHARS
    work = asyncio.to_thread if large else _in_this_thread
    source = await work(_source_text, task, removal, ports)
    limit, counter = removal.summary_tokens, ports.counter
    previous = task.nodes[-1].text if isinstance(removal, Evict) and task.nodes else ""
    request_tokens = max(1, int(limit * REQUEST_SHARE))
    request = summary_request(
        task.model(ports.models),
        source,
        previous=previous,
        max_summary_tokens=request_tokens,
        prompt=task.settings.prompt,
        acknowledge=bool(task.settings.acknowledge),
        options=task.settings.options or {},
    )
    usage = Usage()
    try:
        reply = await _reply(task, request, ports)
        usage = reply.usage
        answer = text_of(reply.parts)
        text = await work(check_summary, answer, source=source, request=request, max_tokens=limit, counter=counter)
    except SummaryRejected as rejected:
        return Summary(await work(extract_summary, removal, ports.counter), "extract", rejected.reason, usage)
    except (ModelError, TimeoutError) as error:
        why = f"{type(error).__name__}: {error}"
        return Summary(await work(extract_summary, removal, ports.counter), "extract", why, usage, failed=True)
    if isinstance(removal, Evict):
        missing = await work(extract, removal.messages)
        text = add_missing(text, missing, max_tokens=limit, counter=counter)
    return Summary(text, "model", None, usage)


async def _in_this_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` in this thread, with the signature of `asyncio.to_thread`."""
    return work(*args, **kwargs)


async def _reply(task: SummaryTask, request: ModelRequest, ports: Ports) -> ModelReply:
    """The model's answer. Raises: ModelError, TimeoutError."""
    model = ports.models.find(request.model)
    if model is None:
        raise ModelNotFound(request.model, known=ports.models.handles())
    async with holding(task.run, ports) if task.run is not None else contextlib.nullcontext():
        try:
            async with asyncio.timeout(ports.settings.summary_timeout_s):
                return await _full_reply(model, request)
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


async def _full_reply(model: Model, request: ModelRequest) -> ModelReply:
    """The model's reply, without its deltas."""
    reply: ModelReply | None = None
    async for piece in model.respond(request):
        if isinstance(piece, ModelReply):
            reply = piece
    return reply if reply is not None else ModelReply(parts=())


def _source_text(task: SummaryTask, removal: Evict | Merge, ports: Ports) -> str:
    """The text to summarise, as the model reads it."""
    if isinstance(removal, Merge):
        return "\n\n".join(
            f"{node_handle(node.seq)} ({message_handle(node.from_message_seq, node.upto_message_seq)}): {node.text}"
            for node in removal.nodes
        )
    return transcript(removal.messages, max_tokens=int(task.budget_tokens * SOURCE_SHARE), counter=ports.counter)


def extract_summary(removal: Evict | Merge, counter: TokenCounter) -> str:
    """The text of a node that no model wrote, within the plan's size."""
    limit = removal.summary_tokens
    if isinstance(removal, Merge):
        text = merge_texts(removal.nodes, max_tokens=limit, counter=counter)
    else:
        text = render_extract(extract(removal.messages), max_tokens=limit, counter=counter)
    return text or "(no words)"
