"""`perdure run`: list and show runs, cancel, export and replay one, fork a conversation at a message."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any

from perdure.cli.run import argument, command, flag, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.chat.agent_choice import chat_command, context_command
    from perdure.cli.views.context import cost, steps_view
    from perdure.cli.views.json import fields, message_shape, step_shape
    from perdure.cli.views.text import transcript_view
    from perdure.cli.views.view import View, local_time, new_table, visible
    from perdure.cli.work import NO_AGENT, InputLines, get_agent, open_store
    from perdure.core.errors import NotFound
    from perdure.core.ids import MessageId, RunId
    from perdure.core.runs import Run, RunFilter, Usage
    from perdure.library.checks import Page
    from perdure.library.messages.transcripts import TranscriptEntry
    from perdure.library.perdure import AsyncPerdure
    from perdure.library.runs.replays import Answer

RunName = Annotated[str, argument("The id of the run, or its beginning.", "ID")]

STEPS_MAX, MESSAGES_MAX = 1_000, 10_000


@command("run list")
async def list_runs(
    view: View,
    agent: Annotated[str | None, argument("Name or id; by default of all.", "AGENT")] = None,
    limit: Annotated[int, option("How many.", min=1, max=10_000)] = 20,
) -> None:
    """List runs, newest first."""
    async with open_store(view, empty=f"There are no runs yet: {NO_AGENT}") as perdure:
        owners = () if agent is None else ((await get_agent(view, perdure, agent)).id,)
        runs = await perdure.runs.page_of_runs(RunFilter(agent_ids=owners), Page(limit, ascending=False))
    numbers = ("tokens in", "out")
    table = new_table("run", "when", "status", *numbers, right=numbers, styles={"when": "dim"})
    for run in runs:
        usage = run.usage
        counts = (f"{usage.input_tokens:,}", f"{usage.output_tokens:,}")
        table.add_row(run.id, local_time(run.created_at), _status(run), *counts)
    view.show([run_shape(run) for run in runs], *([table] if runs else ["There are no runs yet."]))
    view.hint(
        "`perdure run show ID` shows one of them" if runs else "each message to an agent begins one: `perdure chat`"
    )


@command("run show")
async def show_run(view: View, run_id: RunName) -> None:
    """Show the time line of a run, its steps with tokens and price, and its messages."""
    async with _open_run(view, run_id) as (perdure, found):
        run, spans = await perdure.runs.spans_of_run(found)
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
    said = transcript_view([TranscriptEntry(message) for message in messages], agent.name)
    shape = run_shape(run) | {
        "price": price,
        "steps": [step_shape(step) for step in steps[::-1]],
        "spans": [fields(span, "name", "started_at", "ended_at", "failed") for span in spans],
        "messages": [message_shape(message) for message in messages],
    }
    view.show_long(
        shape, Text(visible(f"{head}  {cost(price)}"), style="bold"), *failure, times, steps_view(steps), *said
    )
    view.hint(f"`{context_command(agent)} --step ID --raw` prints a request, `perdure run export {run.id}` everything")


@command("run cancel")
async def cancel_run(view: View, run_id: RunName) -> None:
    """Ask a run to stop."""
    async with _open_run(view, run_id) as (perdure, found):
        run = await perdure.runs.run(found)
        if not run.ended:
            run = await perdure.runs.cancel(run.id)
            view.show(run_shape(run), f"{run.id} was asked to stop.")
            view.hint(f"`perdure run show {run.id}` shows whether it has; what was said is kept")
        else:
            view.show(run_shape(run), f"{run.id} has ended already ({_status(run)}).")


@command("run export", json=False)
async def export_run(view: View, run_id: RunName) -> None:
    """Print a run as JSON: messages, and steps with requests and responses. Keys are masked."""
    async with _open_run(view, run_id) as (perdure, found):
        view.print(json.dumps(await perdure.runs.export_run(found), ensure_ascii=False, indent=2))


@command("run replay")
async def replay_run(
    view: View,
    run_id: RunName,
    model: Annotated[str | None, option("Another model.", "HANDLE")] = None,
    system: Annotated[str | None, option("The whole system text instead; - is stdin.", "FILE")] = None,
) -> None:
    """Send the requests of a run again, and compare the answers.

    Nothing is stored and no tool runs: the model is given the recorded results. Where it calls something else, the
    replay ends.
    """
    text = None if system is None else _read(system)
    async with _open_run(view, run_id) as (perdure, found):
        view.show_status("sending the requests again…")
        replay = await perdure.runs.replay(found, model=model, system=text)
        view.clear_status()
    table = new_table("", visible(replay.old_model), visible(replay.new_model))
    for number, step in enumerate(replay.steps):
        table.add_row(f"step {number}", _answer_text(step.old), _answer_text(step.new))
        table.add_row("", *(Text(_cost(answer), style="dim") for answer in (step.old, step.new)))
    view.show(replay.as_shape(), table, Text(f"The replay ended: {visible(replay.end)}."))
    view.hint("nothing was stored, and no tool ran")


@command("run fork")
async def fork_run(
    view: View,
    message_id: Annotated[str, argument("The id of a message, or its beginning.", "MESSAGE")],
    before: Annotated[bool, flag("--before", "Leave the message itself out.")] = False,
) -> None:
    """Begin a new conversation with a copy of what was said up to a message."""
    async with open_store(view, empty=NotFound("message", message_id, hint=NO_AGENT)) as perdure:
        message = MessageId(await perdure.origins.find_id(message_id, "message"))
        source = await perdure.conversations.conversation_of_message(message)
        agent = await perdure.agent(source.agent_id)
        made = await agent.fork_conversation(
            source.id, upto=None if before else message, before=message if before else None
        )
        view.show({"conversation": made.id, "number": made.seq}, f"Conversation {made.seq} of {visible(agent.name)}.")
        view.hint(f"`{chat_command(agent)} --conversation {made.seq}` goes on there")


def run_shape(run: Run) -> dict[str, Any]:
    """A run of a list."""
    names = ("id", "conversation_id", "status", "stop_reason", "created_at")
    return fields(run, *names) | {"agent_id": run.key.agent_id, "usage": asdict(run.usage)}


def _read(name: str) -> str:
    """The text of a file, or of stdin for `-`. Raises: InvalidInput."""
    lines = InputLines(name)
    try:
        return "".join(lines)
    finally:
        lines.close()


def _answer_text(answer: Answer | None) -> str:
    """What a model said and called."""
    if answer is None:
        return "(no answer)"
    calls: Sequence[str] = [f"⚙ {call.name}({call.own_arguments})" for call in answer.calls if not call.speech]
    return visible("\n".join(filter(None, (answer.text, *calls))))


def _cost(answer: Answer | None) -> str:
    return "" if answer is None else f"{_tokens(answer.usage)}  {cost(answer.price)}"


def _tokens(usage: Usage) -> str:
    return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"


def _status(run: Run) -> str:
    reason = run.stop_reason
    return run.status if reason in (None, "end_turn", run.status) else f"{run.status} ({reason})"


@asynccontextmanager
async def _open_run(view: View, name: str) -> AsyncIterator[tuple[AsyncPerdure, RunId]]:
    """The open store, and the run of this id or its beginning, or of a step. Raises: NotFound, InvalidInput."""
    async with open_store(view, empty=NotFound("run", name, hint=NO_AGENT)) as perdure:
        try:
            found = RunId(await perdure.origins.find_id(name, "run"))
        except NotFound as error:
            raise NotFound("run", name, hint="`perdure run list` lists the newest") from error
        yield perdure, found
