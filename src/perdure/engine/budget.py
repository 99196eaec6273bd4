"""Budgets: what an agent, a key or one run may use. A budget ends a run between two steps, never inside one.

A run has its own budget and that of its key in its options, the agent's is in its settings. What was used in a day is
counted with each step, in the transaction that stores its answer, and looked at before the next one. Model calls that a
request makes outside runs count for the same days, by `CallBudget`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.core.agents import Agent
from perdure.core.conversations import ConversationState
from perdure.core.errors import LimitReached, MessageTooLarge, ModelError, ModelReplyEmpty, NotFound
from perdure.core.incoming.principals import PeriodUsage, Principal, UseLimits, current_principal, day_of
from perdure.core.models import Model, ModelReply, ModelRequest
from perdure.core.runs import MAX_COST, NO_OPTIONS, NO_USAGE, Failure, Run, RunOptions, Step, Usage
from perdure.core.tasks import to_the_end
from perdure.domain.agents.options import LIMITS, limits_in
from perdure.engine.log.next_action import EndRun
from perdure.engine.log.run_log import RunLog
from perdure.engine.ports import Ports, UnitInputs
from perdure.storage.tx import Tx

MINUTE_S = 60

BUDGETS = ("max_tokens_exceeded", MAX_COST)
"""The kinds of failures of runs that have used up a budget."""


def with_key_budget(options: RunOptions, principal: Principal) -> RunOptions:
    """Return a run's options within the limits of the principal's key, for whose day the run counts."""
    options = within(options, principal.limits)
    if principal.key_id is None or not principal.limits.daily:
        return options
    return replace(options, key_id=principal.key_id, key_limits=principal.limits.daily)


def within(options: RunOptions, limits: UseLimits) -> RunOptions:
    """Return the options with the lower one of each limit: their own, or that of `limits`."""
    if limits.tokens_per_run is None and limits.cost_per_run is None:
        return options
    tokens = [one for one in (options.max_tokens, limits.tokens_per_run) if one is not None]
    costs = [one for one in (options.max_cost_usd, limits.cost_per_run) if one is not None]
    return replace(options, max_tokens=min(tokens, default=None), max_cost_usd=min(costs, default=None))


def remaining_limits(options: RunOptions, used: PeriodUsage) -> UseLimits:
    """Return what is left of a run's budget; never 0, which would mean no limit. `used`: as `used_by` returns it."""
    tokens, cost = options.max_tokens, options.max_cost_usd
    return UseLimits(
        tokens_per_run=None if tokens is None else max(1, tokens - used.tokens),
        cost_per_run=None if cost is None else max(1e-9, cost - used.cost),
    )


def used_by(tx: Tx, run: Run, steps: Sequence[Step], inputs: UnitInputs) -> PeriodUsage:
    """Return the tokens and US dollars of a run with these steps, and of its helpers; unknown prices count as 0."""
    found, working = _calls_of(run, steps), {run.id}
    for one in tx.runs.list_by_origin(run.options.origin or run.id):
        if one.options.helper and one.options.caller in working:
            working.add(one.id)
            found += _calls_of(one, tx.steps.list_by_run(one.key))
    costs = (inputs.price_of(model, usage) or 0.0 for model, usage in found)
    return PeriodUsage(tokens=sum(usage.total_tokens for _, usage in found), cost=sum(costs))


def _calls_of(run: Run, steps: Sequence[Step]) -> list[tuple[str, Usage]]:
    """Return (model, usage) of a run's steps, and of its summaries, at the price of the run's newest step."""
    calls = [(step.model, step.usage) for step in steps]
    in_steps = sum((usage for _, usage in calls), NO_USAGE) if run.ended else NO_USAGE
    summaries = Usage(**{name: getattr(run.usage, name) - getattr(in_steps, name) for name in Usage.__slots__})
    return [*calls, (steps[-1].model, summaries)] if steps else calls


def check_key_size(chars: int) -> None:
    """Check that the key of the request may send so many characters to an agent. Raises: MessageTooLarge."""
    if (limit := current_principal.get().limits.message_chars) is not None and chars > limit:
        helps = "ask an administrator for a key with a higher message_chars"
        raise MessageTooLarge(size=chars, limit=limit, whose="this key", helps=helps)


def check_agent_size(chars: int, agent: Agent) -> None:
    """Check that so many characters may be sent to the agent. Raises: MessageTooLarge."""
    if (limit := limits_in(agent.settings).message_chars) is not None and chars > limit:
        helps = "raise message_chars in its setting limits"
        raise MessageTooLarge(size=chars, limit=limit, whose=agent.id, helps=helps)


def check_agent(tx: Tx, opening: ConversationState, chars: int, at: datetime) -> None:
    """Check that the agent may begin another run with so many characters. Raises: LimitReached, MessageTooLarge."""
    check_agent_size(chars, opening.agent)
    if (reached := find_limit(tx, opening, NO_OPTIONS, at)) is not None:
        raise reached


def find_limit(tx: Tx, opening: ConversationState, options: RunOptions, at: datetime) -> LimitReached | None:
    """Return which limit keeps the agent from beginning a run with these options now; None: none does."""
    agent = opening.agent
    if (most := limits_in(agent.settings).requests_per_minute) is not None:
        # Runs are numbered without gaps: this is the one that so many runs are as young as, or younger.
        last = tx.runs.list(agent.id, limit=1, before_seq=opening.next_run_seq - most + 1)
        if last and (wait := MINUTE_S - (at - last[0].created_at).total_seconds()) > 0:
            return LimitReached(f"{agent.id} may begin {most:,} runs a minute, and has", retry_after_s=int(wait) + 1)
    return _find_used_up(tx, _days_of_run(tx, agent, options), at)


def has_budget(agent: Agent, options: RunOptions) -> bool:
    """Whether anything limits what a run of this agent may use, or counts what it uses."""
    own = options.max_tokens, options.max_cost_usd, options.key_id, options.helper or None
    return bool(agent.settings.get(LIMITS)) or any(one is not None for one in own)


def find_exceeded(tx: Tx, agent: Agent, log: RunLog, inputs: UnitInputs) -> EndRun | None:
    """Return the end of a run whose own (with its helpers), agent's or key's budget is used up; None: it may go on."""
    tokens, most = log.run.options.max_tokens, log.run.options.max_cost_usd
    options, limited = log.run.options, tokens is not None or most is not None
    used = used_by(tx, log.run, log.steps, inputs) if limited else PeriodUsage()
    if tokens is not None and used.tokens >= tokens:
        return _end("max_tokens", f"the run has used {used.tokens:,} tokens, and may use {tokens:,}")
    if most is not None and used.cost >= most:
        return _end("max_cost", f"the run has cost {_dollars(used.cost)}, and may cost {_dollars(most)}")
    for owner_id, limits in _days_of_run(tx, agent, options):
        if (text := _find_beyond(tx.used.get(owner_id, day_of(inputs.now)), limits)) is not None:
            return _end(text[0], f"{owner_id} {text[1]}; tomorrow, by UTC, it may go on")
    return None


def count_use(tx: Tx, agent: Agent, options: RunOptions, model: str, usage: Usage, inputs: UnitInputs) -> None:
    """Add tokens and dollars to the day's use of the agent, those it helps, and the key, where they are limited."""
    owners = [owner_id for owner_id, _ in _days_of_run(tx, agent, options)] if has_budget(agent, options) else []
    if owners and usage.total_tokens:
        used = PeriodUsage(tokens=usage.total_tokens, cost=inputs.price_of(model, usage) or 0.0)
        tx.used.add_today(dict.fromkeys(owners, used), at=inputs.now)


class CallBudget:
    """Checks and counts model calls that a request makes outside runs, for the day of the agent and of the key."""

    def __init__(self, agent: Agent, ports: Ports) -> None:
        self._agent, self._ports = agent, ports
        self._options = with_key_budget(NO_OPTIONS, current_principal.get())
        self._days = list(_days(agent, self._options))

    @property
    def is_counted(self) -> bool:
        """Whether what calls take is counted for anybody."""
        return bool(self._days)

    async def check(self) -> None:
        """Check that another call may be made. Raises: LimitReached, StoreError."""
        if self._days:
            reached = await self._ports.store.read(_find_used_up, self._days, self._ports.clock.now())
            if reached is not None:
                raise reached

    async def ask(self, model: Model, request: ModelRequest) -> ModelReply:
        """Ask the model and count what that takes. Raises: LimitReached, ModelError, StoreError."""
        await self.check()
        reply: ModelReply | None = None
        try:
            with self._ports.background.foreground.person():
                async for piece in model.respond(request):
                    if isinstance(piece, ModelReply):
                        reply = piece
        except ModelError as error:
            await self.count(request.model, error.usage)
            raise
        if reply is None:
            raise ModelReplyEmpty(f"{request.model} ended its answer without a reply")
        await self.count(request.model, reply.usage)
        return reply

    async def count(self, model: str, usage: Usage) -> None:
        """Count tokens and dollars of calls for the day of agent and key. Raises: StoreError."""
        if self._days and usage.total_tokens:
            inputs = self._ports.inputs()
            # To the end: what was used counts also for a caller who has left.
            await to_the_end(self._ports.store.write(count_use, self._agent, self._options, model, usage, inputs))


def until_midnight_s(at: datetime) -> int:
    """Return the seconds until the next day of UTC."""
    at = at.astimezone(UTC)
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return int((midnight - at).total_seconds()) + 1


def _days_of_run(tx: Tx, agent: Agent, options: RunOptions) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """As `_days`; for the run of a helper also the agents that it works for, by way of other helpers too."""
    days, caller = dict(_days(agent, options)), options.caller if options.helper else None
    with suppress(NotFound):  # it was deleted with its agent
        while caller is not None:
            run = tx.runs.get(caller, hidden=True)
            days |= _days(tx.agents.get(run.key.agent_id), NO_OPTIONS)
            caller = run.options.caller if run.options.helper else None
    return list(days.items())


def _days(agent: Agent, options: RunOptions) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (id of an agent or key, its limits of a day by name) for each of them that the run counts for."""
    if limits := limits_in(agent.settings).daily:
        yield agent.id, limits
    if options.key_id is not None and options.key_limits:
        yield options.key_id, options.key_limits


def _find_used_up(tx: Tx, days: Iterable[tuple[str, Mapping[str, Any]]], at: datetime) -> LimitReached | None:
    """Return the error of the first owner (id, limits by name) whose limits of this day are used up; None: none is."""
    for owner_id, limits in days:
        if (text := _find_beyond(tx.used.get(owner_id, day_of(at)), limits)) is not None:
            return LimitReached(f"{owner_id} {text[1]}", retry_after_s=until_midnight_s(at))
    return None


def _find_beyond(used: PeriodUsage, limits: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (kind of budget, error text) of the first daily limit that is used up; None: there is none."""
    if (tokens := limits.get("tokens_per_day")) is not None and used.tokens >= tokens:
        return "max_tokens", f"may use {tokens:,} tokens a day, and has used {used.tokens:,}"
    if (cost := limits.get("cost_per_day")) is not None and used.cost >= cost:
        return "max_cost", f"may cost {_dollars(cost)} a day, and has cost {_dollars(used.cost)}"
    return None


def _end(budget: str, message: str) -> EndRun:
    """Return the action that ends a run whose budget of this kind is used up: `max_tokens` or `max_cost`."""
    if budget == "max_tokens":
        return EndRun("max_tokens_exceeded", Failure(kind="max_tokens_exceeded", message=message))
    return EndRun("insufficient_credits", Failure(kind=MAX_COST, message=message))


def _dollars(amount: float) -> str:
    return f"${amount:.4f}".rstrip("0").rstrip(".")
