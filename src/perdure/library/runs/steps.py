"""The model calls of an agent, their requests, and the next request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from perdure.app import ModelRegistry
from perdure.app import prices_of as prices_of
from perdure.context.engines.sliding_window import leaving_by
from perdure.context.request.explain import Explanation, Prices, explain
from perdure.context.request.overview import ContextOverview, ResultTokens
from perdure.context.sections.assemble import View, assemble, canonical, digest_of
from perdure.context.window.plan import leaving_next
from perdure.core.agents import Agent
from perdure.core.errors import IllegalLog, NotFound, ReplayMismatch
from perdure.core.features import Point
from perdure.core.forgetting.redaction import REDACTED
from perdure.core.ids import AgentId, ConversationId, RunId, StepId
from perdure.core.messages import Message
from perdure.core.models import Exchange, ModelOptions, ModelRequest
from perdure.core.nodes import node_handle
from perdure.core.ports import TokenCounter
from perdure.core.runs import Failure, Feedback, Run, RunKey, Step, StepFilter, StepStatus, StopReason, Usage
from perdure.core.text.reprs import attributes, short_repr
from perdure.domain.agents.profile import FULL, PROFILE, PROFILES
from perdure.domain.conversations.spans import StepTimes, times_of
from perdure.domain.conversations.units import join_batches
from perdure.domain.values import as_tags, check_item_limits
from perdure.engine.compaction.room import RequestPreview, preview
from perdure.engine.context_engines import PAGED
from perdure.engine.run.request import load_view
from perdure.library.parts.checks import Page, check_limit, check_text
from perdure.library.parts.part import AsyncAgentPart, find_conversation, find_run, list_run_messages, reads, writes
from perdure.storage.tx import Tx

T = TypeVar("T")

HAS_ERASED: Point[[Tx, AgentId, datetime], bool] = Point("has_erased")
"""Whether a text was erased from the agent's history after this time."""


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

    __repr__ = short_repr("id", "model", "status", "estimated_tokens", "stop_reason", "failure")

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


@dataclass(frozen=True, slots=True)
class StepOfRun:
    """A step with the run and the agent that made it."""

    step: Step
    run: Run
    agent: Agent


@dataclass(frozen=True, slots=True)
class RunUse:
    """The models that a run called, and US dollars for its measured calls; None: none was, or a price is unknown."""

    models: tuple[str, ...]
    cost: float | None


class AsyncSteps(AsyncAgentPart):
    """The model calls of an agent, or of all; `AsyncAgent` has these methods."""

    async def context(self, *, conversation: ConversationId | None = None) -> ContextOverview:
        """What fills the window of a conversation (default: the agent's first): tokens of each part, and what is free.

        The numbers are those that the engine certifies requests by: its estimates, corrected by what the provider
        measured. Raises: InvalidInput, NotFound.
        """
        return overview_of(await self.preview(conversation))

    @reads
    def steps(
        self,
        tx: Tx,
        *,
        conversation: ConversationId | None = None,
        run_id: RunId | None = None,
        limit: int = 20,
        before: StepId | None = None,
    ) -> Sequence[StepInfo]:
        """A page of the agent's model calls, newest first: all of them, or of one conversation or run.

        Args:
            before: the last step of the page before.
        Raises: InvalidInput; NotFound, also for what is another agent's.
        """
        check_limit(limit)
        seq = None if conversation is None else find_conversation(tx, self.id, conversation).seq
        run = None if run_id is None else find_run(tx, run_id, self.id)
        older = None if before is None else find_step(tx, self.id, before)
        if run is None:
            steps = list(tx.steps.list(self.id, conversation_seq=seq, limit=limit, before=older))
        elif seq is not None and run.conversation_seq != seq:
            steps = []
        else:
            steps = [
                step
                for step in reversed(tx.steps.list_by_run(run.key))
                if older is None or _step_place(step) < _step_place(older)
            ][:limit]
        return _step_infos(tx, self._app.models, self.id, steps)

    async def request(self, step_id: StepId) -> ModelRequest:
        """What the model was sent at a step of this agent, built again from the log, byte for byte.

        Its canonical form (`perdure.context.sections.assemble.canonical`) is checked against the recorded digest; a
        step of an older store has none, and is not checked. `options` are not part of it: they are the agent's own if
        its settings are still the same, else the defaults; `exchange` tells which were sent.
        Raises: NotFound, also for another agent's; ReplayMismatch.
        """
        return await self._ports.store.read(lambda tx: build_request(tx, find_step(tx, self.id, step_id))[1])

    @reads
    def explain(self, tx: Tx, step_id: StepId) -> Explanation:
        """What each part of a step's request took: tokens, the provider's cache, the price.

        Raises: NotFound, also for another agent's; ReplayMismatch; InvalidInput: the catalog can't be read.
        """
        return explain_step(tx, find_step(tx, self.id, step_id), self._app.models, self._ports.counter)[2]

    async def exchange(self, step_id: StepId) -> Exchange | None:
        """What a step of this agent sent and received, with keys masked; None for a model without HTTP.

        The messages of the request are not in it: they are in the log. Raises: NotFound, also for another agent's.
        """
        return await self._ports.store.read(lambda tx: tx.steps.exchange(find_step(tx, self.id, step_id)))

    @reads
    def preview(self, tx: Tx, conversation: ConversationId | None = None) -> RequestPreview:
        """The next request of a conversation, with the agent as it is now. Raises: InvalidInput, NotFound."""
        inputs = self._ports.inputs()
        found = find_conversation(tx, self._id, conversation)
        return preview(tx, tx.conversations.get_agent(self._id, found.seq), found, inputs)

    def leaving_next(self, next_request: RequestPreview) -> Sequence[Message] | None:
        """The messages that leave at the next compaction, oldest first; None: a third-party engine decides then."""
        used = self._ports.inputs().engines.of(next_request.agent)
        if used.is_foreign:
            return None
        situation = next_request.situation(self._ports.counter)
        return leaving_next(situation) if used is PAGED else leaving_by(used.engine, situation)

    async def step(self, step_id: StepId) -> StepOfRun:
        """The step with its run and agent. Raises: NotFound."""
        return await self._ports.store.read(lambda tx: _with_agent(tx, *load_with_run(tx, step_id)))

    @reads
    def page_of_steps(self, tx: Tx, where: StepFilter, page: Page) -> Sequence[StepOfRun]:
        """A page of the steps of all agents. Raises: NotFound: the page begins at no such step."""

        def cursor(step_id: str | None) -> Step | None:
            """Return the step that the page begins after. Raises: NotFound."""
            step = None if step_id is None else load_with_run(tx, StepId(step_id))[1]
            if step is not None and where.agent_id not in (None, step.agent_id):
                raise NotFound("step", step.id)
            return step

        after, before = cursor(page.after), cursor(page.before)
        steps = tx.steps.page(where, limit=page.limit, newest_first=not page.ascending, after=after, before=before)
        runs = tx.runs.list_by_keys([RunKey(step.agent_id, step.run_seq) for step in steps])
        agents = tx.agents.list_by_ids([step.agent_id for step in steps])
        return [StepOfRun(step, runs[RunKey(step.agent_id, step.run_seq)], agents[step.agent_id]) for step in steps]

    @writes
    def put_feedback(
        self, tx: Tx, step_id: StepId, feedback: Feedback | None, *, tags: Sequence[str] | None = None
    ) -> StepOfRun:
        """Set a person's opinion of the step, None to remove it, and its tags if given. Raises: NotFound, TooMany."""
        run, step = load_with_run(tx, step_id)
        kept = step.tags if tags is None else as_tags(tags)
        check_item_limits(tx.limits, tags=kept)
        return _with_agent(tx, run, tx.steps.put_feedback(step, feedback, kept))

    @reads
    def messages_of_step(
        self, tx: Tx, step_id: StepId, page: Page, show: Callable[[Message], Sequence[T]], *, id_of: Callable[[T], str]
    ) -> Sequence[T]:
        """A page of what `show` makes of the messages that the step brought: the model's, and the results of its
        calls. What it makes of one message is not split. Raises: NotFound."""
        run, step = load_with_run(tx, step_id)
        messages = join_batches(list_run_messages(tx, run))
        return page.select_shown((show(message) for message in messages if message.step_id == step.id), id_of=id_of)

    @reads
    def times_of_step(self, tx: Tx, step_id: StepId) -> tuple[Run, StepTimes]:
        """The run of a step, and how long the step's model call and tool calls took. Raises: NotFound."""
        run, step = load_with_run(tx, step_id)
        return run, times_of(step, list_run_messages(tx, run))

    @reads
    def trace_of_step(self, tx: Tx, step_id: StepId) -> tuple[Run, Step, Exchange | None]:
        """The step, its run, and what was sent and received, without the messages. Raises: NotFound."""
        run, step = load_with_run(tx, step_id)
        return run, step, tx.steps.exchange(step)

    async def uses_of_runs(self, runs: Sequence[Run]) -> Mapping[RunId, RunUse]:
        """Run -> its models, and what it cost.

        Raises: InvalidInput: the catalog of PERDURE_CATALOG is wrong.
        """
        found = await self._ports.store.read(lambda tx: {run.id: tx.steps.list_by_run(run.key) for run in runs})
        models = {step.model for steps in found.values() for step in steps}
        prices = {model: self.prices_of(model) for model in models}
        return {
            run_id: RunUse(tuple(dict.fromkeys(step.model for step in steps)), _cost(steps, prices))
            for run_id, steps in found.items()
        }

    def prices_of(self, model: str) -> Prices:
        """The prices of a model. Raises: InvalidInput: the catalog of PERDURE_CATALOG is wrong."""
        return prices_of(model, self._app.models)


def _cost(steps: Sequence[Step], prices: Mapping[str, Prices]) -> float | None:
    """US dollars for steps; None: none was measured, or the price of one is unknown."""
    measured = [step for step in steps if step.usage.input_tokens or step.usage.output_tokens]
    costs = [prices[step.model].price(step.usage) for step in measured]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if measured and len(known) == len(costs) else None


def request_of(next_request: RequestPreview) -> ModelRequest:
    """The next request as far as it is known: without the messages about edits of memory that it will begin with."""
    return next_request.view.request(next_request.agent.model, tail=next_request.status)


def overview_of(next_request: RequestPreview) -> ContextOverview:
    """What fills the window of a conversation's next request: the tokens of each part."""
    return ContextOverview(
        model=next_request.agent.model,
        certificate=next_request.certificate,
        sent=next_request.reason is None,
        rewrite=next_request.reason,
        measured_tokens=next_request.measured_tokens,
        message_count=len(next_request.view.pinned) + len(next_request.view.rows),
        hidden_messages=sum(node.message_count for node in next_request.nodes),
        nodes=tuple(node_handle(node.seq) for node in next_request.nodes),
        stubs=dict(next_request.conversation.stubs),
        results=ResultTokens.of(next_request.view.rows),
        pending_edits=len(next_request.deltas),
    )


def load_with_run(tx: Tx, step_id: StepId) -> tuple[Run, Step]:
    """The run of a step, and the step. Raises: NotFound, also for a step of a hidden run."""
    step = tx.steps.get(step_id)
    run = tx.runs.get_by_key(RunKey(step.agent_id, step.run_seq))
    if run.hidden:
        raise NotFound("step", step_id)
    return run, step


def _with_agent(tx: Tx, run: Run, step: Step) -> StepOfRun:
    """A step with its run and agent."""
    return StepOfRun(step, run, tx.agents.get(step.agent_id))


def find_step(tx: Tx, agent_id: AgentId, step_id: StepId) -> Step:
    """The agent's own step of this id. Raises: InvalidInput; NotFound, also for another agent's."""
    check_text("step_id", step_id)
    step = tx.steps.get(step_id)
    if step.agent_id != agent_id:
        name = tx.agents.get(agent_id).name
        raise NotFound("step", step_id, hint=f"agent {name!r} has no such step")
    return step


def _step_infos(tx: Tx, models: ModelRegistry, agent_id: AgentId, steps: Sequence[Step]) -> Sequence[StepInfo]:
    """What lists show of an agent's steps, which are given newest first, in their order."""
    runs = tx.runs.list_by_keys([RunKey(agent_id, step.run_seq) for step in steps])
    prices = {model: prices_of(model, models) for model in dict.fromkeys(step.model for step in steps)}
    infos: list[StepInfo] = []
    for place, step in enumerate(steps):
        step_run = runs[RunKey(agent_id, step.run_seq)]
        seq = step_run.conversation_seq
        same = (other for other in steps[place + 1 :] if runs[RunKey(agent_id, other.run_seq)].conversation_seq == seq)
        earlier = next(same, None) or next(
            iter(tx.steps.list(agent_id, conversation_seq=seq, limit=1, before=step)), None
        )
        prefix_seq = step.recipe.prefix_seq
        is_new = earlier is None or earlier.recipe.prefix_seq != prefix_seq
        infos.append(
            StepInfo(
                run_id=step_run.id,
                conversation_id=step_run.conversation_id,
                estimated_tokens=step.recipe.tokens - step.recipe.overcount,
                price=prices[step.model].price(step.usage),
                prefix_seq=prefix_seq,
                rewritten=tx.prefixes.get(agent_id, prefix_seq).reason if is_new else None,
                **attributes(step, "id", "index", "status", "model", "usage", "stop_reason", "failure"),
                **attributes(step, "created_at", "ended_at"),
            )
        )
    return infos


def explain_step(
    tx: Tx, step: Step, models: ModelRegistry, counter: TokenCounter
) -> tuple[View, ModelRequest, Explanation]:
    """(view of a step, its request, both from the log; costs of the request's parts). Raises: ReplayMismatch."""
    view, request = build_request(tx, step)
    explanation = explain(step, view, prices=prices_of(step.model, models), counter=counter)
    return view, request, replace(explanation, redacted=is_redacted(tx, step, request))


def build_request(tx: Tx, step: Step) -> tuple[View, ModelRequest]:
    """(view of a step, its request), built from the log. Raises: ReplayMismatch: the log no longer tells it."""
    recipe = step.recipe
    run = tx.runs.get_by_key(RunKey(step.agent_id, step.run_seq))
    now = tx.conversations.get_agent(step.agent_id, run.conversation_seq)
    try:
        view = load_view(tx, run, recipe)
    except (IllegalLog, NotFound) as error:
        raise ReplayMismatch(step.id, recorded=recipe.digest, why=str(error)) from error
    options = ModelOptions()
    if now.settings_revision == recipe.settings_revision:
        profile = PROFILES[view.prefix.parts.get(PROFILE, FULL)]
        options = ModelOptions.from_settings({**profile, **now.settings})
    request = assemble(step.model, view, recipe, options=options)
    if recipe.digest and (rebuilt := digest_of(request)) != recipe.digest and not is_redacted(tx, step, request):
        raise ReplayMismatch(step.id, recorded=recipe.digest, rebuilt=rebuilt)
    return view, request


def is_redacted(tx: Tx, step: Step, request: ModelRequest) -> bool:
    """Whether a text was erased from the request after it was sent; it reads "[redacted]" there."""
    return any(HAS_ERASED(tx, step.agent_id, step.created_at)) and REDACTED.encode() in canonical(request)


def _step_place(step: Step) -> tuple[int, int]:
    """The step's place in the agent's log: the number of its run, and its index there."""
    return step.run_seq, step.index
