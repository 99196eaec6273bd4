"""`perdure run`: list and show runs, cancel, export and replay one, fork a conversation at a message; and `perdure
approval`: the calls of agents that wait for a person.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from perdure.cli.commands.run import Agent, Limit, argument, command, flag, for_work, option
from perdure.cli.session.needs import NO_AGENT

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.commands.agents import conversation_named
    from perdure.cli.session.agent_choice import chat_command, context_command
    from perdure.cli.session.session import ChatSession
    from perdure.cli.session.source import StdinLines
    from perdure.cli.session.work import get_agent, read_object, read_text
    from perdure.cli.views.context import cost, steps_view
    from perdure.cli.views.json import fields, message_shape, step_shape
    from perdure.cli.views.text import pending_shape, pending_text, transcript_view
    from perdure.cli.views.view import Output, local_time, new_table, visible
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.ids import ConversationId, MessageId, RunId
    from perdure.core.runs import Run, RunFilter, Usage
    from perdure.core.tools.answers import PendingCall
    from perdure.library.messages.transcripts import TranscriptEntry
    from perdure.library.parts.checks import Page
    from perdure.library.perdure import AsyncPerdure
    from perdure.library.runs.replays import ReplayAnswer

    AgentCall = tuple[str, PendingCall]
    """(name of the agent, call)"""

RunName = Annotated[str, argument("The id of the run, or its beginning.", "ID")]

STEPS_MAX, MESSAGES_MAX = 1_000, 10_000
OfCall = Annotated[str | None, argument("By default all that wait.", "CALL")]
InConversation = Annotated[
    str | None, option("Number or id of the one where the call waits.", "NUMBER", name="--conversation")
]
NO_CALL = "no call waits for anybody"


@command("run list", none=f"There are no runs yet: {NO_AGENT}")
async def list_runs(
    view: Output,
    perdure: AsyncPerdure,
    agent: Annotated[str | None, argument("Name or id; by default all agents.", "AGENT")] = None,
    limit: Limit = 20,
) -> None:
    """List runs, newest first."""
    owners = () if agent is None else ((await get_agent(view, perdure, agent)).id,)
    runs = await perdure.runs.page_of_runs(RunFilter(agent_ids=owners), Page(limit, ascending=False))
    numbers = ("tokens in", "out")
    table = new_table("run", "when", "status", *numbers, right=numbers, styles={"when": "dim"})
    for run in runs:
        counts = (f"{run.usage.input_tokens:,}", f"{run.usage.output_tokens:,}")
        table.add_row(run.id, local_time(run.created_at), _status(run), *counts)
    view.show([run_shape(run) for run in runs], table if runs else "There are no runs yet.")
    more = "`perdure run show ID` shows one of them"
    view.hint(more if runs else "each message to an agent begins one: `perdure chat`")


@command("run show", finds="run")
async def show_run(view: Output, perdure: AsyncPerdure, run_id: RunName) -> None:
    """Show the time line of a run, its steps with tokens and price, and its messages."""
    run, spans = await perdure.runs.spans_of_run(await _find_run(perdure, run_id))
    agent = await perdure.agent(run.key.agent_id)
    steps = await agent.steps(run_id=run.id, limit=STEPS_MAX)
    messages = await perdure.runs.messages_of_run(
        run.id, Page(MESSAGES_MAX, ascending=True), lambda _, message: [message], id_of=lambda message: message.id
    )
    times = new_table("", "seconds", right=("seconds",))
    for span in spans:
        seconds = "goes on" if span.ended_at is None else f"{(span.ended_at - span.started_at).total_seconds():.3f}"
        times.add_row(Text(visible(span.name), style="red" if span.failed else ""), seconds)
    prices = [step.price for step in steps]
    price = None if None in prices else sum(one for one in prices if one is not None)
    head = f"{run.id}  {_status(run)}  {local_time(run.created_at)}  agent {agent.name}  {_tokens(run.usage)}"
    failure = [] if run.failure is None else [Text(visible(run.failure.message), style="yellow")]
    options = run.options
    what = f"helper {options.helper}" if options.helper else "model"
    helper = [Text(visible(f"{what}: {options.model_reason}"), style="dim")] if options.model_reason else []
    said = transcript_view([TranscriptEntry(message) for message in messages], agent.name)
    shape = run_shape(run) | {
        "price": price,
        "steps": [step_shape(step) for step in steps[::-1]],
        "spans": [fields(span, "name", "started_at", "ended_at", "failed") for span in spans],
        "messages": [message_shape(message) for message in messages],
    }
    title = Text(visible(f"{head}  {cost(price)}"), style="bold")
    view.show_long(shape, title, *helper, *failure, times, steps_view(steps), *said)
    view.hint(f"`{context_command(agent)} --step ID --raw` prints a request, `perdure run export {run.id}` everything")


@command("run cancel", finds="run")
async def cancel_run(view: Output, perdure: AsyncPerdure, run_id: RunName) -> None:
    """Ask a run to stop."""
    run = await perdure.runs.run(await _find_run(perdure, run_id))
    if run.ended:
        view.show(run_shape(run), f"{run.id} has ended already ({_status(run)}).")
        return
    run = await perdure.runs.cancel(run.id)
    view.show(run_shape(run), f"{run.id} was asked to stop.")
    view.hint(f"`perdure run show {run.id}` shows whether it has; what was said is kept")


@command("run export", json=False, finds="run")
async def export_run(view: Output, perdure: AsyncPerdure, run_id: RunName) -> None:
    """Print a run as JSON: messages, and steps with requests and responses. Keys are masked."""
    found = await _find_run(perdure, run_id)
    view.print(json.dumps(await perdure.runs.export_run(found), ensure_ascii=False, indent=2))


@command("run replay", finds="run")
async def replay_run(
    view: Output,
    perdure: AsyncPerdure,
    run_id: RunName,
    model: Annotated[str | None, option("Another model.", "HANDLE")] = None,
    system: Annotated[str | None, option("The whole system text instead; - is stdin.", "FILE")] = None,
) -> None:
    """Send the requests of a run again, and compare the answers.

    Nothing is stored and no tool runs: the model is given the recorded results. Where it calls something else, the
    replay ends.
    """
    text = None if system is None else read_text(system)
    found = await _find_run(perdure, run_id)
    view.show_status("sending the requests again…")
    replay = await perdure.runs.replay(found, model=model, system=text)
    view.clear_status()
    table = new_table("", visible(replay.old_model), visible(replay.new_model))
    for number, step in enumerate(replay.steps):
        table.add_row(f"step {number}", _answer_text(step.old), _answer_text(step.new))
        costs = ("" if one is None else f"{_tokens(one.usage)}  {cost(one.price)}" for one in (step.old, step.new))
        table.add_row("", *(Text(text, style="dim") for text in costs))
    view.show(replay.as_shape(), table, Text(f"The replay ended: {visible(replay.end)}."))
    view.hint("nothing was stored, and no tool ran")


@command("run fork", finds="message")
async def fork_run(
    view: Output,
    perdure: AsyncPerdure,
    message_id: Annotated[str, argument("The id of a message, or its beginning.", "MESSAGE")],
    before: Annotated[bool, flag("--before", "Leave the message itself out.")] = False,
) -> None:
    """Begin a new conversation with a copy of what was said up to a message."""
    message = MessageId(await perdure.ids.find(message_id, "message"))
    source = await perdure.conversations.conversation_of_message(message)
    agent = await perdure.agent(source.agent_id)
    made = await agent.fork_conversation(
        source.id, upto=None if before else message, before=message if before else None
    )
    view.show({"conversation": made.id, "number": made.seq}, f"Conversation {made.seq} of {visible(agent.name)}.")
    view.hint(f"`{chat_command(agent)} --conversation {made.seq}` goes on there")


def run_shape(run: Run) -> dict[str, Any]:
    """A run as lists of runs print it in JSON."""
    names = ("id", "conversation_id", "status", "stop_reason", "created_at")
    shape = fields(run, *names) | {"agent_id": run.key.agent_id, "usage": asdict(run.usage)}
    routed = fields(run.options, "helper", "model_reason")
    return shape | {name: value for name, value in routed.items() if value}


def _answer_text(answer: ReplayAnswer | None) -> str:
    """What a model said and called."""
    if answer is None:
        return "(no answer)"
    calls: Sequence[str] = [f"⚙ {call.name}({call.own_arguments})" for call in answer.calls if not call.speech]
    return visible("\n".join(filter(None, (answer.text, *calls))))


def _tokens(usage: Usage) -> str:
    return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"


def _status(run: Run) -> str:
    reason = run.stop_reason
    return run.status if reason in (None, "end_turn", run.status) else f"{run.status} ({reason})"


async def _find_run(perdure: AsyncPerdure, name: str) -> RunId:
    """The run of this id or its beginning, or of a step. Raises: NotFound, InvalidInput."""
    try:
        return RunId(await perdure.ids.find(name, "run"))
    except NotFound as error:
        raise NotFound("run", name, hint="`perdure run list` lists the newest") from error


@command("approval list", none=NO_CALL)
async def list_approvals(view: Output, perdure: AsyncPerdure) -> None:
    """List the tool calls that wait for a person, or for the program that sent the message."""
    waiting = await perdure.approvals.list_all()
    shapes = [{"agent": name, **pending_shape(call)} for name, call in waiting]
    view.show(shapes, *(f"{name}: {pending_text(call)}{_conversation_suffix(call, waiting)}" for name, call in waiting))
    hint = "`perdure approval approve AGENT` lets them run, `perdure approval deny AGENT` refuses them"
    view.hint(hint if waiting else NO_CALL)


def _conversation_suffix(call: PendingCall, waiting: Sequence[AgentCall]) -> str:
    """` in <conversation>` if calls of the same agent wait in several conversations, else nothing."""
    conversations = {other.conversation_id for _, other in waiting if other.agent_id == call.agent_id}
    return f" in {call.conversation_id}" if len(conversations) > 1 else ""


@command("approval approve", change=True)
async def approve(
    view: Output,
    perdure: AsyncPerdure,
    agent: Agent,
    call: OfCall = None,
    arguments: Annotated[str | None, option("Arguments in place of the model's.", "JSON")] = None,
    conversation: InConversation = None,
) -> int:
    """Approve waiting calls of an agent, and print its answer."""
    if arguments is not None:
        read_object("--arguments", arguments, '{"city": "Rome"}')
    session = ChatSession(perdure, agent, StdinLines(), view)
    session.conversation = await _find_conversation(perdure, agent, call, conversation)
    return await session.run_decision(True, call, arguments=arguments)


@command("approval deny", change=True)
async def deny(
    view: Output,
    perdure: AsyncPerdure,
    agent: Agent,
    call: OfCall = None,
    reason: Annotated[str | None, option("Sent to the agent.", "TEXT")] = None,
    conversation: InConversation = None,
) -> int:
    """Refuse waiting calls of an agent, and print its answer."""
    session = ChatSession(perdure, agent, StdinLines(), view)
    session.conversation = await _find_conversation(perdure, agent, call, conversation)
    return await session.run_decision(False, call, reason=reason)


async def _find_conversation(
    perdure: AsyncPerdure, agent: Agent, call_id: str | None, option: str | None
) -> ConversationId | None:
    """The conversation that the option names, else the one where the call waits or was decided; None: the first."""
    if option is not None:
        return (await conversation_named(agent, option)).id
    ids = {
        call.conversation_id: None
        for _, call in await perdure.approvals.list_all()
        if call.agent_id == agent.id and (call.call_id == call_id or (call_id is None and not call.awaits_client))
    }
    if len(ids) > 1:
        raise InvalidInput(
            f"such calls of agent {agent.name!r} wait in several conversations: name one with"
            f" --conversation ({', '.join(ids)})"
        )
    if not ids and call_id is not None:
        conversations = await agent.find_decided(call_id)
        return conversations[0] if len(conversations) == 1 else None
    return next(iter(ids), None)
