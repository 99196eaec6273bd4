"""Looking at requests: which were made, one of them built again from the log, what it took; and what the next takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.app import facts_of
from perdure.context.request.assemble import View, assemble, digest_of
from perdure.context.request.explain import Explanation, Prices, explain
from perdure.context.window.overview import ContextOverview
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.errors import IllegalLog, NotFound, ReplayMismatch
from perdure.core.ids import ConversationId, RunId, StepId
from perdure.core.models import ModelOptions, ModelRequest
from perdure.core.nodes import node_handle
from perdure.core.ports import TokenCounter
from perdure.core.runs import Failure, Run, RunKey, Step, StepStatus, StopReason, Usage
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.preview import Preview, preview
from perdure.engine.run.request import load_view
from perdure.storage.tx import Tx

__all__ = [
    "StepInfo",
    "load_explanation",
    "load_overview",
    "load_preview",
    "load_request",
    "load_step",
    "load_steps",
    "overview_of",
    "prices_of",
    "request_inputs_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """One model call, as lists show it.

    Args:
        index: counts within the run, from 0.
        estimated_tokens: the corrected estimate that the request was sent on; 0 for a step of an older store.
        usage: what the provider measured; zeros where nothing was.
        price: US dollars for that; None where it is unknown.
        rewritten: why this request began with another prefix than the one before it in its conversation, which is
            where a provider's cache is lost; None: it began with the same.
    """

    id: StepId
    run_id: RunId
    conversation_id: ConversationId
    index: int
    status: StepStatus
    model: str
    estimated_tokens: int
    usage: Usage
    price: float | None
    prefix_seq: int
    rewritten: str | None
    stop_reason: StopReason | None
    failure: Failure | None
    created_at: datetime
    ended_at: datetime | None


def request_inputs_of(ports: Ports) -> UnitInputs:
    """What a look at the next request needs besides the store."""
    return ports.inputs()


def load_preview(tx: Tx, agent: Agent, conversation_seq: int, inputs: UnitInputs) -> Preview:
    """The next request of a conversation, the agent as it is now. Raises: NotFound."""
    return preview(tx, tx.agents.get(agent.id), tx.conversations.at(agent.id, conversation_seq), inputs)


def overview_of(found: Preview) -> ContextOverview:
    """The same in numbers."""
    return ContextOverview(
        model=found.agent.model,
        certificate=found.certificate,
        sent=found.reason is None,
        rewrite=found.reason,
        measured_tokens=found.measured_tokens,
        message_count=len(found.view.pinned) + len(found.view.rows),
        hidden_messages=sum(node.message_count for node in found.nodes),
        nodes=tuple(node_handle(node.seq) for node in found.nodes),
        stubs=dict(found.conversation.stubs),
        pending_edits=len(found.deltas),
    )


def load_overview(tx: Tx, agent: Agent, conversation_seq: int, inputs: UnitInputs) -> ContextOverview:
    """What fills the window of a conversation. Raises: NotFound."""
    return overview_of(load_preview(tx, agent, conversation_seq, inputs))


def load_step(tx: Tx, agent: Agent, step_id: StepId) -> Step:
    """The agent's own step of this id. Raises: NotFound, also for another agent's."""
    step = tx.steps.get(step_id)
    if step.agent_id != agent.id:
        raise NotFound("step", step_id, hint=f"agent {agent.name!r} has no such step")
    return step


def load_steps(
    tx: Tx,
    agent: Agent,
    *,
    conversation: Conversation | None,
    run: Run | None,
    limit: int,
    before: StepId | None,
) -> Sequence[StepInfo]:
    """A page of the agent's steps, newest first. Raises: NotFound: `before` is no step of the agent."""
    older = None if before is None else load_step(tx, agent, before)
    seq = None if conversation is None else conversation.seq
    if run is None:
        steps = list(tx.steps.list(agent.id, conversation_seq=seq, limit=limit, before=older))
    elif seq is not None and run.conversation_seq != seq:
        steps = []
    else:
        steps = [step for step in reversed(tx.steps.of_run(run.key)) if older is None or _at(step) < _at(older)][:limit]
    runs = {key: tx.runs.at(key) for key in dict.fromkeys(RunKey(agent.id, step.run_seq) for step in steps)}
    prices = {model: prices_of(model) for model in dict.fromkeys(step.model for step in steps)}
    found: list[StepInfo] = []
    for place, step in enumerate(steps):
        of = runs[RunKey(agent.id, step.run_seq)]
        line = of.conversation_seq
        same = (other for other in steps[place + 1 :] if runs[RunKey(agent.id, other.run_seq)].conversation_seq == line)
        earlier = next(same, None) or next(
            iter(tx.steps.list(agent.id, conversation_seq=line, limit=1, before=step)), None
        )
        prefix_seq = step.recipe.prefix_seq
        is_new = earlier is None or earlier.recipe.prefix_seq != prefix_seq
        found.append(
            StepInfo(
                id=step.id,
                run_id=of.id,
                conversation_id=of.conversation_id,
                index=step.index,
                status=step.status,
                model=step.model,
                estimated_tokens=step.recipe.tokens - step.recipe.overcount,
                usage=step.usage,
                price=prices[step.model].price(step.usage),
                prefix_seq=prefix_seq,
                rewritten=tx.prefixes.at(agent.id, prefix_seq).reason if is_new else None,
                stop_reason=step.stop_reason,
                failure=step.failure,
                created_at=step.created_at,
                ended_at=step.ended_at,
            )
        )
    return found


def load_request(tx: Tx, agent: Agent, step_id: StepId) -> ModelRequest:
    """The request of a step, built again from the log. Raises: NotFound, ReplayMismatch."""
    return _rebuilt(tx, agent, load_step(tx, agent, step_id))[1]


def load_explanation(tx: Tx, agent: Agent, step_id: StepId, counter: TokenCounter) -> Explanation:
    """What the request of a step took. Raises: NotFound, ReplayMismatch; InvalidInput: the catalog is wrong."""
    step = load_step(tx, agent, step_id)
    view, _ = _rebuilt(tx, agent, step)
    return explain(step, view, prices=prices_of(step.model), counter=counter)


def prices_of(model: str) -> Prices:
    """What is known of a model's prices. Raises: InvalidInput: the catalog of PERDURE_CATALOG is wrong."""
    facts = facts_of(model)
    return Prices(
        input=facts.input_price,
        cached_input=facts.cached_price,
        cache_write=facts.cache_write_price,
        output=facts.output_price,
    )


def _rebuilt(tx: Tx, agent: Agent, step: Step) -> tuple[View, ModelRequest]:
    recipe = step.recipe
    now = tx.agents.get(agent.id)
    run = tx.runs.at(RunKey(step.agent_id, step.run_seq))
    try:
        view = load_view(tx, run, recipe)
    except (IllegalLog, NotFound) as error:
        raise ReplayMismatch(step.id, recorded=recipe.digest, why=str(error)) from error
    options = ModelOptions.of(now.settings) if now.settings_revision == recipe.settings_revision else ModelOptions()
    request = assemble(step.model, view, recipe, options=options)
    if recipe.digest and (rebuilt := digest_of(request)) != recipe.digest:
        raise ReplayMismatch(step.id, recorded=recipe.digest, rebuilt=rebuilt)
    return view, request


def _at(step: Step) -> tuple[int, int]:
    return step.run_seq, step.index
