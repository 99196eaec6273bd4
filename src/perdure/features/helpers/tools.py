"""The tool `run_helper`: a helper works for the agent that calls, in a conversation of its own.

A call that is repeated after a crash finds the conversation and the run that it began, by its own run and id.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from perdure.app import App
from perdure.core.errors import NoReply, NotFound, ReplyTimeout, ToolError
from perdure.core.ids import RunId
from perdure.core.incoming.principals import PeriodUsage
from perdure.core.messages import Text
from perdure.core.ports import CallContext
from perdure.core.runs import Run, RunOptions
from perdure.core.sources import Source
from perdure.core.specs import Tool, ToolOutcome
from perdure.domain.provenance.context import context_sources
from perdure.engine.budget import remaining_limits, used_by, within
from perdure.engine.compaction.engine_turns import subagent_call
from perdure.engine.ports import UnitInputs
from perdure.engine.records.rows import NEWEST
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.engine.run.accept import Accepted
from perdure.features.groups.tools import Sender, clip_reply
from perdure.features.helpers.agents import Caller, conversation_of_call, find_begun, load_caller, open_conversation
from perdure.features.helpers.catalog import Helper
from perdure.features.helpers.choices import choose_for
from perdure.features.helpers.routing import ModelChoice
from perdure.storage.tx import Tx

_TASK = "[A task of the agent that you work for. It is shown your last message only: put the whole result there.]"
_OF_AGENT = "[You work on a task of your own here, apart from the conversation with your user, as your helper {name}.\
 Only your last message leaves this conversation: put the whole result there.]"


class Helpers:
    """`FeatureToolbox` of this tool."""

    def __init__(self, app: App) -> None:
        self._app = app
        # Of each run the places of the helpers that it may have at work at once.
        self._places: WeakValueDictionary[RunId, asyncio.Semaphore] = WeakValueDictionary()

    def missing(self, tool: Tool) -> str | None:
        return None

    async def close(self) -> None:
        """Nothing is held open."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        if not context.run_id:
            raise ToolError("a helper works for an agent: run it as a tool of an agent")
        if not arguments["prompt"].strip():
            raise ToolError("the prompt is empty: say what the helper shall do")
        sender = await Sender.of(self._app, context)
        places = self._places.setdefault(context.run_id, asyncio.Semaphore(self._app.settings.agent_sends_at_once))
        call = _Call(self._app, sender, arguments["name"].strip(), arguments["prompt"], arguments.get("model") or "")
        async with places:
            return await call.carry_out()


class HelperFailed(NoReply):
    """A helper gives no result; its run `run_id` holds the log."""

    def __init__(self, name: str, error: NoReply) -> None:
        ToolError.__init__(self, f"helper {name!r} {error.problem}; `perdure run show {error.run_id}` shows its log")
        self.agent_id, self.run_id, self.problem = error.agent_id, error.run_id, error.problem


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the tool."""

    app: App
    sender: Sender
    name: str
    prompt: str
    model: str

    async def carry_out(self) -> ToolOutcome:
        """Have the helper work, and return its result. Raises: ToolError, TooMany, ModelNotFound, StoreError."""
        sender, store, limit_s = self.sender, self.app.ports.store, self.app.settings.helper_reply_s
        key = sender.key or ""
        begun = await store.read(find_begun, conversation_of_call(key), key)
        request = await self._prepare(key) if begun is None else RunRequest(agent_id=begun.key.agent_id)
        async with subagent_call(self.app.ports, sender.context, request.agent_id, self.prompt) as reply:
            try:
                accepted = await sender.accept(request, waits=True) if begun is None else Accepted(begun, ())
                texts, run = await sender.reply_to(accepted, limit_s=limit_s, through_approval=True)
                outcome = await store.read(_outcome, run, self.name, texts[-1])
            except ReplyTimeout as error:
                await self.app.runner.cancel(RunId(error.run_id))
                late = NoReply(error.agent_id, error.run_id, f"took more than {limit_s:g} s and was stopped")
                raise HelperFailed(self.name, late) from error
            except NoReply as error:
                raise HelperFailed(self.name, error) from error
            except NotFound as error:
                raise ToolError(f"helper {self.name!r} was deleted while it worked, and its log with it") from error
            reply.append(outcome.text)
        return outcome

    async def _prepare(self, key: str) -> RunRequest:
        """Return the request to the helper, whose agent and conversation are made if need be; raises as `carry_out`."""
        ports, settings = self.app.ports, self.app.settings
        caller = await ports.store.read(load_caller, RunId(self.sender.context.run_id), ports.models)
        helper = caller.get(self.name)
        choice = choose_for(helper, caller.agent.model, ports.models, settings, call=self.model)
        inputs = ports.inputs()
        opened = await ports.store.write(open_conversation, caller, helper, conversation_of_call(key), ports, inputs)
        is_agent = helper.memory == "agent"
        words = [_OF_AGENT.format(name=helper.name), helper.prompt] if is_agent else [_TASK]
        message = NewMessage(
            (Text("\n\n".join(filter(None, (*words, self.prompt)))),),
            sender_id=caller.agent.id,
            sources=await ports.store.read(_sources_of, caller.run),
        )
        return RunRequest(
            agent_id=opened.agent_id,
            conversation_seq=opened.seq,
            messages=(message,),
            max_steps=helper.field("max_turns", settings.max_steps),
            options=await ports.store.read(_options, caller, helper, choice, inputs),
            client_tools=await ports.store.read(_client_tools, caller.run) if helper.is_fork else None,
            sent_chars=len(self.prompt),
            identity=key,
        )


def _options(tx: Tx, caller: Caller, helper: Helper, choice: ModelChoice, inputs: UnitInputs) -> RunOptions:
    """Return the run options of a helper: its model and its caller's remaining limits. Raises: ToolError: used up."""
    of_caller = caller.run.options
    limited = of_caller.max_tokens is not None or of_caller.max_cost_usd is not None
    used = used_by(tx, caller.run, tx.steps.list_by_run(caller.run.key), inputs) if limited else PeriodUsage()
    if used.tokens >= (of_caller.max_tokens or math.inf) or used.cost >= (of_caller.max_cost_usd or math.inf):
        raise ToolError("the tokens or dollars that you and your helpers may use in this run are used up")
    tools = helper.tools if helper.memory == "agent" else None  # an agent of its own has no others
    if helper.is_fork and of_caller.tools is not None:
        tools = [name for name in helper.tools if name in of_caller.tools]
    options = RunOptions(
        model=of_caller.model if helper.is_fork else choice.model,
        system=of_caller.system if helper.is_fork else None,
        tools=tools,
        helper=helper.name,
        model_reason=choice.reason,
        max_cost_usd=helper.field("max_cost_usd"),
        key_id=of_caller.key_id,
        key_limits=of_caller.key_limits,
    )
    return within(options, remaining_limits(of_caller, used))


def _client_tools(tx: Tx, run: Run) -> tuple[Mapping[str, Any], ...] | None:
    """Return the tools that the caller of a run has brought; None: none."""
    return None if run.client_tools is None else tuple(tx.runs.client_tools(run.key.agent_id, run.client_tools))


def _sources_of(tx: Tx, run: Run) -> tuple[Source, ...]:
    """Return where what is in the context of a run's conversation comes from, as far as that is outside."""
    found = context_sources(tx, run.key.agent_id, run.conversation_seq, before_seq=NEWEST)
    return tuple(one.source for one in found)


def _outcome(tx: Tx, run: Run, name: str, text: str) -> ToolOutcome:
    """Return a helper's result: its last words, else `text`, its log's handle, and its outside sources."""
    run = tx.runs.get(run.id, hidden=True)
    spoken = [row.text for row in tx.messages.list_by_run(run) if row.role == "assistant" and row.text.strip()]
    text = clip_reply(spoken[-1] if spoken else text, run.id)
    model = next((step.model for step in tx.steps.list_by_run(run.key)), "")
    ends = {"end_turn": "", "max_steps": f" It was stopped after {run.step_count} steps, its `max_turns`."}
    end = ends.get(run.stop_reason or "", f" It ended with {run.stop_reason}.")
    handle = f"[Helper {name} on {model}.{end} Log: {run.id}; `perdure run show {run.id}` shows it.]"
    return ToolOutcome(text=f"{text}\n\n{handle}", sources=_sources_of(tx, run))
