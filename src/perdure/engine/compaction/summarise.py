"""Summaries: written by a model and audited, after one repair if they are no good, or extracted by our own code;
and what a compaction's plan is made of, from the rows of the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ParamSpec, TypedDict, TypeVar, Unpack

from perdure.context.sections.assemble import View
from perdure.context.sections.stubs import stub_chars
from perdure.context.window.audit import SourceText, audit_summary, cut_for_missing
from perdure.context.window.budget import Certificate
from perdure.context.window.extract import clip, extract
from perdure.context.window.plan import KEEP_SHARE, LEAST_SUMMARY, Evict, Merge, Situation
from perdure.context.window.summary import (
    LENGTH_FACTOR,
    SummaryRejected,
    check_summary,
    clean_answer,
    extract_summary,
    transcript,
)
from perdure.context.window.summary_request import instructions, own_summary_request, repair_request, summary_request
from perdure.core.agents import Agent
from perdure.core.conversations import CompactionSettings, SummarySettings
from perdure.core.errors import LeaseLost, ModelError, ModelNotFound, ModelOverflow, PerdureError, StoreError
from perdure.core.messages import Message, text_of, unlogged_message
from perdure.core.models import Model, ModelReply, ModelRequest, Models
from perdure.core.nodes import MadeBy, SummaryMethod, SummaryNode, message_handle, node_handle
from perdure.core.ports import TokenCounter
from perdure.core.runs import NO_USAGE, Prefix, Run, Usage
from perdure.core.telemetry import ModelWork
from perdure.engine.estimates import rows_tokens
from perdure.engine.log.interrupts import is_cancelled
from perdure.engine.log.run_log import ViewState
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.reading import ModelInput
from perdure.engine.records.leases import holding
from perdure.storage.tx import Tx

NO_RUN = -1
"""Where no run is under way, so that all but the newest atom may leave."""


class RunState(TypedDict, total=False):
    """The fields of `Situation` about the current run: its number, the first row of its turn, up to which row its model
    has seen and was sent messages, and whether the agent can open hidden texts."""

    run_seq: int
    turn_from: int | None
    seen_upto: int
    sent_upto: int
    can_open: bool


def situation_of(
    state: ViewState,
    certificate: Certificate,
    counter: TokenCounter,
    *,
    prepared: Sequence[SummaryNode] = (),
    **run: Unpack[RunState],
) -> Situation:
    """Build the situation of a conversation's next request, with the agent's settings.

    Args:
        prepared: summaries that are not in view yet, oldest first.
        run: what is known of the current run; without it, all but the newest atom may leave.
    """
    compaction = CompactionSettings.of(state.agent)
    share = compaction.keep_share
    return Situation(
        certificate=certificate,
        nodes=state.nodes,
        pinned=state.view.pinned,
        rows=state.view.rows,
        stubs=state.conversation.stubs,
        keep_share=KEEP_SHARE if share is None else share,
        prepared=tuple(prepared),
        summaries=SummarySettings.of(state.agent),
        compaction=compaction,
        counter=counter,
        **(RunState(run_seq=NO_RUN) | run),
    )


def load_prepared(tx: Tx, prefix: Prefix) -> Sequence[SummaryNode]:
    """Load the summaries that are not in the prefix's view yet, oldest first, but those of revised messages."""
    agent_id, conversation_seq = prefix.agent_id, prefix.conversation_seq
    shown = set(prefix.nodes)

    def is_prepared(node: SummaryNode) -> bool:
        """Whether a stored node is a prepared summary: not shown yet, and for messages in view."""
        if node.seq in shown:
            return False
        if node.level:  # a plan takes it only for the same children
            return True
        return node.from_message_seq >= prefix.from_message_seq and not tx.nodes.is_outdated(node)

    return [node for node in tx.nodes.list_newest(agent_id, conversation_seq) if is_prepared(node)]


logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SOURCE_SHARE = 0.7
"""The share of the model's budget for the text to summarise; the rest is for instructions and estimation errors."""

LARGE_CHARS = 100_000
"""Reading so much takes long enough for others to notice, so it is done in a thread."""

REQUEST_SHARE = 0.75
"""The share of a summary's size that the model is asked for. Facts that it left out are added behind."""


TEMPERATURE = MappingProxyType({"temperature": 0.0})
"""A summary is to say what was said, and nothing else."""

REPAIR_SHARE = 0.55
"""The share of it that the model is asked for in a repair."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The text of a node, made by the model or by our own code.

    Args:
        model: the model that was called.
        rejected: why an answer of it was not used.
        failed: it gave no answer at all.
    """

    text: str
    method: SummaryMethod
    made_by: MadeBy = "extract"
    model: str | None = None
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
        view: the agent's own view, for the modes `self_...`; None: what is summarised is not in view.
        overcount: by how many tokens the estimate of that view is too high.
        run: whose lease is held meanwhile; None: no run needs it.
    """

    agent: Agent
    settings: CompactionSettings
    nodes: Sequence[SummaryNode]
    budget_tokens: int
    view: View | None = None
    overcount: int = 0
    run: Run | None = None

    @property
    def is_own(self) -> bool:
        """Whether the agent's own model writes, in a request that begins as the agent's own do."""
        return (self.settings.mode or "").startswith("self")

    def model(self, models: Models) -> str:
        """Return the handle of the model that writes: the agent's own where no other is set, or it can't be reached."""
        handle = self.settings.model
        return self.agent.model if self.is_own or handle is None or models.find(handle) is None else handle

    def reading(self, conversation_seq: int, removal: Evict | Merge) -> ModelInput:
        """Return what the writer of a summary is shown: leaving messages, earlier summaries, maybe the prefix."""
        agent_id = self.agent.id
        nodes = (*self.nodes, *(removal.nodes if isinstance(removal, Merge) else removal.absorbed))
        rows = () if isinstance(removal, Merge) else removal.messages

        def shown(nodes: Sequence[SummaryNode], rows: Sequence[Message], revision: int) -> object:
            """Return the part of these values on which the summary depends."""
            texts = [(node.seq, node.text) for node in nodes], [(row.seq, row.parts) for row in rows]
            return texts, revision if self.is_own else None

        def again(tx: Tx) -> object:
            """Read the same again, and keep it so until the transaction ends."""
            tx.agents.lock(agent_id)
            return shown(
                tx.nodes.list_by_seqs(agent_id, conversation_seq, [node.seq for node in nodes]),
                tx.messages.list_by_seqs(agent_id, [row.seq for row in rows]),
                tx.agents.get(agent_id).settings_revision,
            )

        return ModelInput(shown(nodes, rows, self.agent.settings_revision), again)


async def summarise(task: SummaryTask, removal: Evict | Merge, ports: Ports) -> Summary:
    """Write a summary of what a plan removes, within the plan's size and the settings' characters, by at most two calls
    of a model. Raises: WaitInterrupted: the run was asked to stop; LeaseLost, StoreError."""
    summary = await _summarise(task, removal, ports)
    clipped = task.settings.clip(summary.text)
    return summary if clipped == summary.text else replace(summary, text=clipped, method="capped")


async def _summarise(task: SummaryTask, removal: Evict | Merge, ports: Ports) -> Summary:
    """Write a summary within the plan's size. Raises: WaitInterrupted, LeaseLost, StoreError."""
    if removal.summary_tokens <= LEAST_SUMMARY:  # too little for a model to say anything in
        return Summary(extract_summary(removal, ports.counter), "fallback", rejected="too_small")
    if SummarySettings.of(task.agent).author == "code":
        return Summary(await asyncio.to_thread(extract_summary, removal, ports.counter), "fallback")
    is_large = isinstance(removal, Evict) and sum(map(stub_chars, removal.messages)) > LARGE_CHARS
    run_work = asyncio.to_thread if is_large else _in_this_thread
    model = task.model(ports.models)
    if task.run is not None and ports.yields(model):  # a person waits; the model may write it later
        return Summary(await run_work(extract_summary, removal, ports.counter), "fallback", model=model)
    previous = task.nodes[-1].text if isinstance(removal, Evict) and task.nodes and not removal.absorbed else ""
    source = await run_work(_source_of, task, removal, previous, ports)
    limit = removal.summary_tokens
    request_tokens = max(1, int(limit * REQUEST_SHARE))
    plain = summary_request(
        model,
        source.shown,
        previous=previous,
        max_summary_tokens=request_tokens,
        prompt=task.settings.prompt,
        acknowledge=bool(task.settings.acknowledge),
        options={**TEMPERATURE, **(task.settings.options or {})},
    )
    own = await run_work(_own_request, task, removal, request_tokens, ports.inputs())
    request = own or plain
    prompt = instructions(task.settings.prompt, request_tokens)
    limit_s = ports.limit_s(model, ports.settings.summary_timeout_s)
    until_s = None if limit_s is None else asyncio.get_running_loop().time() + limit_s
    usage, rejected, has_answer = Usage(), list[str](), False
    for method in _CALLS:
        try:
            reply = await _reply(task, request, ports, until_s=until_s)
        except (ModelError, TimeoutError) as error:
            rejected.append(f"{type(error).__name__}: {error}")
            usage += error.usage if isinstance(error, ModelError) else NO_USAGE
            if isinstance(error, ModelOverflow) and own is not None:
                own, request = None, plain
                continue
            break
        usage += reply.usage
        answer, has_answer = text_of(reply.parts), True
        verdict = await run_work(_judge, answer, source, prompt, limit, ports.counter, last=method == _CALLS[-1])
        if verdict.text:
            why = "; ".join(rejected) or None
            return Summary(verdict.text, "capped" if verdict.capped else method, "model", model, why, usage)
        rejected.append(verdict.problem)
        request = repair_request(
            request,
            clip(answer, int(limit * LENGTH_FACTOR), ports.counter),  # of a longer one the beginning tells enough
            verdict.problem,
            missing=verdict.missing,
            invented=verdict.invented,
            max_summary_tokens=max(1, int(limit * REPAIR_SHARE)),
        )
    text = await run_work(extract_summary, removal, ports.counter)
    return Summary(text, "fallback", "extract", model, "; ".join(rejected), usage, failed=not has_answer)


def _own_request(task: SummaryTask, removal: Evict | Merge, max_tokens: int, inputs: UnitInputs) -> ModelRequest | None:
    """Build the request to the agent's own model: the agent's own request up to what leaves the view, then the
    instructions. None: the settings name another writer, or the window has no room for the request and a summary of
    `max_tokens`."""
    if not task.is_own or task.view is None or not isinstance(removal, Evict):
        return None
    leaving = [row for row in task.view.rows if row.seq in {message.seq for message in removal.messages}]
    if not leaving:
        return None
    view = View.of(task.view.prefix, task.view.pinned, task.view.stubs)
    view = view.with_rows([row for row in task.view.rows if row.seq <= leaving[-1].seq])
    request = own_summary_request(
        task.agent.model,
        view,
        leaving,
        absorbed=removal.absorbed,
        max_summary_tokens=max_tokens,
        prompt=task.settings.prompt,
        options={**TEMPERATURE, **task.agent.settings, **(task.settings.options or {})},
    )
    counter, (window, _) = inputs.counter, inputs.window(task.agent)
    whole, shown = (one.prefix.tokens + rows_tokens(one, one.stubs, counter) for one in (task.view, view))
    corrected = shown * (1 - task.overcount / max(1, whole))
    added = counter.count(request.messages[-1].text) + (request.options.max_output_tokens or 0)
    return request if corrected + added <= window else None


_CALLS: tuple[SummaryMethod, ...] = ("normal", "aggressive")
"""The calls of a model for one summary: the second is told what is wrong with the answer of the first."""


@dataclass(frozen=True, slots=True)
class _SummaryCheck:
    """What becomes of an answer: its text as a summary, `capped` if it was cut; without a text, what is wrong."""

    text: str = ""
    capped: bool = False
    problem: str = ""
    missing: Sequence[str] = ()
    invented: Sequence[str] = ()


def _judge(
    answer: str, source: SourceText, prompt: str, limit: int, counter: TokenCounter, *, last: bool
) -> _SummaryCheck:
    """Check and audit an answer. `last`: no other call follows, so what the summary lacks replaces its end."""
    try:
        text = check_summary(answer, source=source.shown, prompt=prompt, max_tokens=limit, counter=counter)
    except SummaryRejected as rejected:
        return _SummaryCheck(problem=rejected.reason)
    is_cut = not clean_answer(answer).endswith(text)
    audit = audit_summary(text, source, max_tokens=limit, counter=counter)
    if audit.invented:
        return _SummaryCheck(problem="invented", missing=audit.missing, invented=audit.invented)
    if not audit.missing:
        return _SummaryCheck(audit.text, is_cut)
    if not last:
        return _SummaryCheck(problem="missing", missing=audit.missing)
    return _SummaryCheck(cut_for_missing(text, source, max_tokens=limit, counter=counter), True)


async def _in_this_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` in this thread, with the signature of `asyncio.to_thread`."""
    return work(*args, **kwargs)


async def _reply(task: SummaryTask, request: ModelRequest, ports: Ports, *, until_s: float | None) -> ModelReply:
    """Return the answer of a summary's model, while the lease of the task's run is held. `until_s`: the latest time, of
    the event loop's clock; None: no limit. Raises: ModelError, TimeoutError, LeaseLost, StoreError."""
    model = ports.models.find(request.model)
    if model is None:
        raise ModelNotFound(request.model, known=ports.models.handles())
    async with holding(task.run, ports) if task.run is not None else contextlib.nullcontext():
        try:
            async with asyncio.timeout_at(until_s):
                with ports.telemetry.during(work := ModelWork(model=request.model, request=request)):
                    work.reply = await _full_reply(model, request)
                return work.reply
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
    """Return the reply at the end of the model's answer; one without parts if it ended without."""
    reply: ModelReply | None = None
    async for piece in model.respond(request):
        if isinstance(piece, ModelReply):
            reply = piece
    return reply if reply is not None else ModelReply(parts=())


def _source_of(task: SummaryTask, removal: Evict | Merge, previous: str, ports: Ports) -> SourceText:
    """Return what the summariser reads and is checked against. `previous`: the earlier summary, for names in it."""
    nodes = removal.nodes if isinstance(removal, Merge) else removal.absorbed
    numbers = tuple(node.seq for node in nodes)
    older = "\n\n".join(
        f"{node_handle(node.seq)} ({message_handle(node.from_message_seq, node.upto_message_seq)}): {node.text}"
        for node in nodes
    )
    if isinstance(removal, Merge):
        texts = [replace(unlogged_message("assistant", node.text), seq=node.seq) for node in nodes]
        span = (nodes[0].from_message_seq, nodes[-1].upto_message_seq)
        return SourceText(older, older, extract(texts), span, numbers, node_handle)
    most = int(task.budget_tokens * SOURCE_SHARE) - ports.counter.count(older)
    newer = transcript(removal.messages, max_tokens=max(1, most), counter=ports.counter, timezone=task.agent.timezone)
    shown = f"{older}\n\n{newer}" if older else newer
    span = (nodes[0].from_message_seq if nodes else removal.messages[0].seq, removal.messages[-1].seq)
    return SourceText(shown, f"{previous}\n{shown}", extract(removal.messages), span, numbers)


def engine_summary(removal: Evict | Merge, text: str, counter: TokenCounter) -> Summary:
    """Return the summary that a context engine wrote, followed by important items that it lacks, as far as they fit."""
    if isinstance(removal, Evict):
        span = (removal.messages[0].seq, removal.messages[-1].seq)
        source = SourceText(text, text, extract(removal.messages), span)
        text = audit_summary(text, source, max_tokens=removal.summary_tokens, counter=counter).text
    return Summary(text, "normal", "engine")
