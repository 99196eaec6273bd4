"""`perdure agent`, `perdure conversation` and `perdure history`. `/agents` and `/conversations` list the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Annotated, Any

from perdure.cli.commands.run import Agent, LastAgent, NewProfile, Yes, argument, command, flag, for_work, option
from perdure.cli.session.needs import NO_AGENT

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.session import work
    from perdure.cli.session.agent_choice import (
        chat_command,
        check_first_model,
        last_conversation,
        model_row,
        open_agent,
        set_model,
        shell_word,
    )
    from perdure.cli.views.json import agent_shape, conversation_shape, fields, message_shape, model_shape, reset_shape
    from perdure.cli.views.text import (
        about_conversation,
        agents_view,
        conversations_view,
        last_turns,
        model_view,
        reset_view,
        settings_view,
        transcript_view,
    )
    from perdure.cli.views.view import AgentRow, ConversationRow, Output, plural
    from perdure.core.conversations import Conversation
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.ids import ConversationId, is_id
    from perdure.domain.conversations.importing import ImportedMessage, imported_message
    from perdure.library.agent import AsyncAgent
    from perdure.library.messages.transcripts import TranscriptEntry
    from perdure.library.parts.checks import LIMIT_MAX
    from perdure.library.perdure import AsyncPerdure
    from perdure.settings import Settings

FIRST_AGENT = "`perdure` makes one and starts the chat."
SHOWN = 500
"""How many agents a person is shown, those used last: laying out a table of all would take longer than reading them."""
KEPT = "its memory blocks, archives and files stay"
Number = Annotated[str, argument("Number or id of the conversation.", "NUMBER")]
MESSAGES = 100
TURN_MESSAGES_MAX = 50
LAST_TURNS = 3


@command("agent create")
async def create_agent(
    view: Output,
    name: Annotated[str, argument("Name of the new agent.", "NAME")],
    persona: Annotated[str | None, option("Who it is: its block `persona`.", "TEXT")] = None,
    human: Annotated[str | None, option("What it knows about you: its block `human`.", "TEXT")] = None,
    model: Annotated[
        str | None, option("Its model, as provider/name; by default it follows the default model.", "HANDLE")
    ] = None,
    profile: NewProfile = None,
    sleeptime: Annotated[
        bool, flag("--sleeptime", "With a companion that tidies its memory while nobody waits.")
    ] = False,
) -> None:
    """Create an agent. `perdure chat NAME` talks to it."""
    await check_first_model(Settings.from_environment(), model)
    async with work.open_store() as perdure:
        target = await open_agent(
            perdure, name=name, new=True, model=model, view=view, profile=profile, persona=persona, human=human
        )
        agent = target.agent
        if sleeptime:
            await agent.companion.enable()
        reason = perdure.app.choice.reason if model is None else "as you asked"
        view.show(
            agent_shape(AgentRow(agent.info, agent.info.created_at)),
            f"Created agent {agent.name!r} with model {agent.info.model} ({reason}).",
        )
        view.hint(f"`{chat_command(agent)}` talks to it.")


@command("agent list", none=f"There are no agents yet. {FIRST_AGENT}")
async def list_agents(view: Output, perdure: AsyncPerdure) -> None:
    """List the agents, the one used last first."""
    rows = await load_agents(perdure)
    view.show([agent_shape(row) for row in rows], agents_view(rows[:SHOWN]))
    if len(rows) > SHOWN:
        view.hint(f"{len(rows) - SHOWN:,} more were used before these: `perdure agent list --json` lists all.")
    view.hint("`perdure chat NAME` talks to one of them." if rows else FIRST_AGENT)


@command("agent update", change=True)
async def update_agent(
    view: Output,
    perdure: AsyncPerdure,
    agent: Agent,
    model: Annotated[str, option("Pin this model, or `default`: follow the default.", "HANDLE")],
) -> None:
    """Give an agent another model."""
    row = model_row(await set_model(agent, model, perdure.app), perdure.app)
    view.show({"model": model_shape(row)}, *model_view(row))


@command("agent settings", change=lambda given: bool(given["changes"]))
async def settings(
    view: Output,
    agent: LastAgent,
    changes: Annotated[
        list[str] | None, argument("Such as context_engine=sliding_window; values are JSON.", "[NAME=VALUE]...")
    ] = None,
) -> None:
    """Show or change an agent's settings: `context_engine`, `guards`, `summaries`, `tool_output` and so on."""
    if pairs := work.read_pairs("a setting", changes):
        changed = dict(agent.info.settings) | {name: work.read_value(text) for name, text in pairs.items()}
        agent = await agent.update(settings={name: value for name, value in changed.items() if value is not None})
    view.show(agent.info.settings, settings_view(agent.info.settings))
    view.hint(
        f"`perdure agent settings {shell_word(agent.name)} NAME=VALUE` sets one, NAME=null takes it back;"
        " docs/library.md#agents lists them."
    )


async def load_agents(perdure: AsyncPerdure) -> list[AgentRow]:
    """Every agent but hidden ones, the one used last first."""
    agents = [agent.info for agent in await work.load_all(perdure.agents) if not agent.info.hidden]
    used_at = await perdure.all_agents.last_used([agent.id for agent in agents])
    rows = [AgentRow(agent, used_at.get(agent.id, agent.created_at)) for agent in agents]
    return sorted(rows, key=lambda row: row.used_at, reverse=True)


@command("agent reset", change=True)
async def reset(view: Output, agent: Agent, yes: Yes = False) -> None:
    """Clear an agent's view of its old messages, for good; its memory stays.

    Memory blocks, archives and files stay, and so does the log.
    """
    count = plural(await agent.message_count(), "message")
    question = f"{count} of agent {agent.name!r} will be out of its view, for good; {KEPT}. Reset?"
    work.confirm(view, question, action="reset the agent", yes=yes)
    resets = await agent.reset()
    view.show({"reset": [reset_shape(one) for one in resets]}, reset_view(resets))
    view.hint(f"This can't be undone; `{chat_command(agent)}` begins anew.")


@command("agent cancel", change=True)
async def cancel(
    view: Output,
    agent: Agent,
    conversation: Annotated[str | None, option("Only this one; a number or id.", "NUMBER")] = None,
) -> None:
    """Cancel the runs of an agent and its waiting calls. No model is called."""
    line = None if conversation is None else (await conversation_named(agent, conversation)).id
    runs = await agent.cancel_all(conversation=line, whole_agent=line is None)
    lines = (f"{run.id}: {'cancelled' if run.ended else 'asked to stop'}" for run in runs)
    view.show([fields(run, "id", "conversation_id", "status") for run in runs], *lines)
    view.hint(f"`{chat_command(agent)}` goes on." if runs else "there is nothing to cancel")


@command("agent delete", change=True)
async def delete_agent(view: Output, perdure: AsyncPerdure, agent: Agent, yes: Yes = False) -> None:
    """Delete an agent with its whole history; its memory blocks, archives and files stay."""
    also = f"{plural(await agent.message_count(), 'message')} of {agent.id} too; {KEPT}"
    with work.deleting(view, f"agent {agent.name!r}", also, yes=yes, after=KEPT, id_=agent.id):
        await perdure.delete_agent(agent.id)


@command("conversation list", none=NO_AGENT, shape={"conversations": []})
async def list_conversations(view: Output, agent: LastAgent) -> None:
    """List the conversations of an agent, oldest first."""
    await show_conversations(view, agent, await last_conversation(agent))
    view.hint(f"`{chat_command(agent)} --conversation NUMBER` goes on with one of them.")


@command("conversation rename", finds="conversation", change=True)
async def rename(
    view: Output,
    number: Number,
    name: Annotated[str, argument("What it is about; '' removes the name.", "NAME")],
    agent: LastAgent,
) -> None:
    """Name a conversation."""
    conversation = await conversation_named(agent, number)
    conversation = await agent.update_conversation(conversation.id, summary=name.strip() or None)
    await show_conversation(view, agent, conversation)


@command("conversation delete", finds="conversation", change=True)
async def delete_conversation(view: Output, number: Number, agent: LastAgent, yes: Yes = False) -> None:
    """Hide a conversation from every list, search and view, for good."""
    conversation = await conversation_named(agent, number)
    what, stays = f"conversation {conversation.seq} of agent {agent.name!r}", "memory blocks, archives and files stay"
    about = f" ({conversation.summary!r:.80})" if conversation.summary else ""
    also = f"what was said in it{about} will be in no list, search or view; {stays}"
    # The first one can't be deleted: the call says so, without a question.
    with work.deleting(view, what, also, yes=yes or not conversation.seq, after=stays, id_=conversation.id):
        await agent.delete_conversation(conversation.id)


async def conversation_named(agent: AsyncAgent, name: str) -> Conversation:
    """The conversation of this number or id; `default` is the first. Raises: NotFound."""
    if name == "default":
        return await agent.find_conversation()
    if is_id("conversation", name):
        return await agent.find_conversation(ConversationId(name))
    if name.isdecimal() and len(name) < 10:
        page = await agent.conversations(limit=1, after_seq=int(name) - 1)
        if page and page[0].seq == int(name):
            return page[0]
    hint = f"agent {agent.name!r} has none of this number; `perdure conversation list` lists them"
    raise NotFound("conversation", name, hint=hint)


async def show_conversations(view: Output, agent: AsyncAgent, current: ConversationId | None) -> None:
    """Show every conversation of the agent, oldest first.

    Args:
        current: the conversation that the chat continues; None: the agent's first.
    """
    rows = [await _row(agent, conversation, current) for conversation in await work.load_conversations(agent)]
    view.show({"conversations": [conversation_shape(row) for row in rows]}, conversations_view(rows))


async def show_conversation(view: Output, agent: AsyncAgent, conversation: Conversation) -> None:
    """Show the conversation that the chat continues."""
    about = about_conversation(await _row(agent, conversation, conversation.id))
    view.show({"conversation": conversation.id}, Text.assemble(f"Conversation {conversation.seq}: ", about))


async def _row(agent: AsyncAgent, conversation: Conversation, current: ConversationId | None) -> ConversationRow:
    """A conversation as a list shows it."""
    first = () if conversation.summary else await agent.messages(conversation=conversation.id, limit=1)
    is_current = conversation.id == current if current is not None else conversation.seq == 0
    return ConversationRow(conversation, first[0].text if first else "", is_current)


@command("history")
async def history(
    view: Output,
    agent: LastAgent,
    since: Annotated[str | None, option("Only from this date on, such as 2026-11-20.", "DATE")] = None,
    limit: Annotated[int | None, option("How many messages; by default 100, or all since.", min=1, max=10_000)] = None,
    conversation: Annotated[str | None, option("A number or id; by default all.", "NUMBER")] = None,
) -> None:
    """Print what was said, with tool calls and edits of memory.

    The newest stands at the end.
    """
    line = None if conversation is None else (await conversation_named(agent, conversation)).id
    most = limit or (MESSAGES if since is None else LIMIT_MAX)
    entries = await agent.transcript(conversation=line, since=since, limit=most)
    several = len({entry.message.conversation_seq for entry in entries}) > 1
    shape = {"agent": agent.name, "agent_id": agent.id, "messages": [entry_shape(entry) for entry in entries]}
    view.show_long(shape, *transcript_view(entries, agent.name, conversations=several))
    if entries and len(entries) == most:
        view.hint(f"only the newest {plural(most, 'message')}: --limit shows more")
    elif entries:
        view.hint(f"`{chat_command(agent)}` goes on")
    elif since is None:
        view.hint(f"nothing was said yet: `{chat_command(agent)}` begins")
    else:
        view.hint(f"nothing was said since {since}: --since takes an earlier date")


def entry_shape(entry: TranscriptEntry) -> dict[str, Any]:
    """A message of a transcript, with the edits of memory that it made, and `failure` if its run failed there."""
    message = entry.message
    edits = [fields(edit, "label", "version", "diff") for edit in entry.edits]
    more = fields(message, "run_id", "step_id") | {"conversation": message.conversation_seq, "edits": edits}
    failed = {} if entry.failure is None else {"failure": fields(entry.failure, "kind", "message")}
    return message_shape(message) | more | failed


async def show_last_turns(
    view: Output, agent: AsyncAgent, conversation: ConversationId | None, turns: int = LAST_TURNS
) -> None:
    """Show a person the last turns of a conversation (None: the agent's first), dimmed."""
    line = (await agent.find_conversation(conversation)).id
    entries = await agent.transcript(conversation=line, limit=TURN_MESSAGES_MAX)
    view.print(*transcript_view(last_turns(entries, turns), agent.name, style="dim"))


@command("conversation import", change=True)
async def import_messages(
    view: Output,
    file: Annotated[str, argument("One JSON object per line, oldest first; - is stdin.", "FILE")],
    agent: Agent,
    conversation: Annotated[str | None, option("Where they go, a number or id: `new` creates one.", "NUMBER")] = None,
) -> None:
    """Add messages from elsewhere to the history of an agent.

    Each line has "role" (user, assistant or system), "text" and "occurred_at" (with a zone), and may have "name" (who
    spoke) and "id". What is already there is skipped.
    """
    limit_chars = Settings.from_environment().message_limit_chars
    with closing(work.InputLines(file)) as lines:
        total = sum(1 for _ in _parse_messages(lines, limit_chars))
        if conversation == "new":
            into = await agent.new_conversation()
        else:
            into = await conversation_named(agent, conversation or "default")
        with work.progress_bar() as progress:
            counts = await agent.import_messages(
                _parse_messages(lines, limit_chars),
                conversation=into.id,
                checked=True,
                progress=lambda done: progress("importing", done, total),
            )
    view.show(asdict(counts))
    if counts.out_of_order:
        older = f"{counts.out_of_order:,} of them are older than a message above them"
        view.note(f"{older}; the order is the file's.")
    if counts.hint:
        view.note(f"{counts.hint}: `--conversation new`.")
    view.hint(
        f"Imported {plural(counts.imported, 'message')} into {counts.conversation_id}{skipped_text(counts.skipped)}."
        f" `{chat_command(agent)}` goes on from there; `perdure search TEXT` finds them."
    )


def skipped_text(count: int) -> str:
    """How many of the lines were there already; empty for none."""
    return f", {count:,} {'was' if count == 1 else 'were'} there already" if count else ""


def _parse_messages(lines: Iterable[str], limit_chars: int) -> Iterator[ImportedMessage]:
    """The messages of a file. Raises: InvalidInput, naming the line, from 1."""
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            yield imported_message(json.loads(text), limit_chars=limit_chars)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"line {number}: it is not JSON ({error})") from error
