"""The verbs of `perdure agent`, `memory`, `source`, `conversation`, `approval` and `run`."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.run import Agent, AsJson, LastAgent, NewProfile, Org, Yes, verbs
from perdure.cli.run import old_command as command

agent, memory, conversation, approval, run, source = (verbs() for _ in range(6))

Label = Annotated[str, typer.Argument(metavar="LABEL", help="Label of the block, such as human.")]
Number = Annotated[str, typer.Argument(metavar="NUMBER", help="Number or id of the conversation.")]
RunName = Annotated[str, typer.Argument(metavar="ID", help="The id of the run, or its beginning.")]
OfCall = Annotated[str | None, typer.Argument(metavar="CALL", help="By default all that wait.")]
SourceName = Annotated[
    str, typer.Argument(metavar="SOURCE", help="As in the list, such as web:https://example.com, or the id of a run.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken back.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many.")]
InConversation = Annotated[
    str | None,
    typer.Option("--conversation", metavar="NUMBER", help="Number or id of the one where the call waits."),
]


@command(agent, "agents.create_agent", name="create")
def create_agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the new agent.")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="HANDLE", help="Its model, as provider/name; by default as found.")
    ] = None,
    profile: NewProfile = None,
    sleeptime: Annotated[
        bool, typer.Option("--sleeptime", help="With a companion that tidies its memory while nobody waits.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create an agent. `perdure chat NAME` talks to it."""


@command(agent, "agents.list_agents", name="list")
def list_agents(as_json: AsJson = False) -> None:
    """List the agents, the one used last first."""


@command(agent, "agents.update_agent", name="update")
def update_agent(
    agent: Agent,
    model: Annotated[
        str, typer.Option("--model", metavar="HANDLE", help="Pin this model, or `default`: follow the default.")
    ],
    as_json: AsJson = False,
) -> None:
    """Give an agent another model."""


@command(agent, "agents.export_agent", name="export")
def export_agent(
    agent: Agent,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Such as ann.af (- is stdout).")],
    messages: Annotated[bool, typer.Option("--messages/--no-messages", help="With its messages.")] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
    org: Org = None,
) -> None:
    """Write an agent with its memory, tools, folders and messages as an agent file, which Letta's server reads too."""


@command(agent, "agents.import_agents", name="import")
def import_agents(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An agent file (.af); - is stdin.")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Another name.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="HANDLE", help="Another model, as provider/name.")
    ] = None,
    messages: Annotated[bool, typer.Option("--messages/--no-messages", help="With its messages.")] = True,
    org: Org = None,
) -> None:
    """Make the agents of an agent file, of this program or of Letta's server."""


@command(agent, "agents.settings")
def settings(
    agent: LastAgent = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]...", help="Such as context_engine=sliding_window; values are JSON."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or change an agent's settings: `context_engine`, `guards`, `summaries`, `tool_output` and so on."""


@command(agent, "agents.reset")
def reset(
    agent: Agent,
    yes: Yes = False,
) -> None:
    """Take the old messages of an agent out of its view, for good; its memory stays.

    Memory blocks, archives and files stay, and so does the log.
    """


@command(agent, "agents.cancel")
def cancel(
    agent: Agent,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="NUMBER", help="Only this one; a number or id.")
    ] = None,
) -> None:
    """Cancel the runs of an agent and its waiting calls. No model is called."""


@command(agent, "agents.delete_agent", name="delete")
def delete_agent(agent: Agent, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete an agent with its whole history; its memory blocks, archives and files stay."""


@command(memory, "memory.list_blocks", name="list")
def list_blocks(agent: LastAgent = None, as_json: AsJson = False) -> None:
    """List the memory blocks of an agent with their values."""


@command(memory, "memory.show_block", name="show")
def show_block(label: Label, agent: LastAgent = None, as_json: AsJson = False) -> None:
    """Show a memory block."""


@command(memory, "memory.history")
def history(label: Label, agent: LastAgent = None, as_json: AsJson = False) -> None:
    """Show the versions of a memory block: who wrote each, and the difference."""


@command(memory, "memory.restore")
def restore(
    label: Label,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=0, help="Its number in the history.")],
    agent: LastAgent = None,
    as_json: AsJson = False,
) -> None:
    """Bring the value of an earlier version of a block back, as a new version."""


@command(memory, "provenance.sources.revert_writes", name="revert")
def revert_writes(
    agent: Agent,
    writes: Annotated[
        list[str],
        typer.Argument(
            metavar="WRITE...", help="A version of a block as block-…@3, or the id of a passage or episode."
        ),
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take writes of an agent's memory back. `perdure undo` brings them back."""


@command(source, "provenance.sources.list_sources", name="list")
def list_sources(agent: LastAgent = None, limit: Limit = 100, as_json: AsJson = False) -> None:
    """List what the memory of an agent came from: web pages, files, MCP servers, tools, agents, imports."""


@command(source, "provenance.sources.show_source", name="show")
def show_source(agent: Agent, source: SourceName, limit: Limit = 100, as_json: AsJson = False) -> None:
    """Show the blocks, passages and facts that came from one source, or were written in one run."""


@command(source, "provenance.sources.revert_source", name="revert")
def revert_source(
    agent: Agent, source: SourceName, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Take back all that came from one source or run. `perdure undo` brings it back."""


@command(conversation, "conversations.list_conversations", name="list")
def list_conversations(agent: LastAgent = None, as_json: AsJson = False) -> None:
    """List the conversations of an agent, oldest first."""


@command(conversation, "conversations.rename")
def rename(
    number: Number,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is about; '' takes its name away.")],
    agent: LastAgent = None,
    as_json: AsJson = False,
) -> None:
    """Name a conversation."""


@command(conversation, "conversations.delete_conversation", name="delete")
def delete_conversation(number: Number, agent: LastAgent = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Hide a conversation from every list, search and view, for good."""


@command(conversation, "transfer.import_messages", name="import")
def import_messages(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Whose history, by name or id.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="One JSON object a line, oldest first; - is stdin.")],
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", metavar="NUMBER", help="Where they go, a number or id: `new` creates one."),
    ] = None,
) -> None:
    """Add messages from elsewhere to the history of an agent.

    Each line has "role" (user, assistant or system), "text" and "occurred_at" (with a zone), and may have "name" (who
    spoke) and "id". What is there already is skipped.
    """


@command(approval, "approvals.list_approvals", name="list")
def list_approvals(as_json: AsJson = False) -> None:
    """List the tool calls that wait for a person, or for the program that sent the message."""


@command(approval, "approvals.approve")
def approve(
    agent: Agent,
    call: OfCall = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Arguments in place of the model's.")
    ] = None,
    conversation: InConversation = None,
) -> None:
    """Approve waiting calls of an agent, and print its answer."""


@command(approval, "approvals.deny")
def deny(
    agent: Agent,
    call: OfCall = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Sent to the agent.")] = None,
    conversation: InConversation = None,
) -> None:
    """Refuse waiting calls of an agent, and print its answer."""


@command(run, "runs.list_runs", name="list")
def list_runs(
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Name or id; by default of all.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""


@command(run, "runs.show_run", name="show")
def show_run(run_id: RunName, as_json: AsJson = False) -> None:
    """Show the time line of a run, its steps with tokens and price, and its messages."""


@command(run, "runs.cancel_run", name="cancel")
def cancel_run(run_id: RunName, as_json: AsJson = False) -> None:
    """Ask a run to stop."""


@command(run, "runs.export_run", name="export")
def export_run(run_id: RunName) -> None:
    """Print a run as JSON: messages, and steps with requests and responses. Keys are masked."""


@command(run, "runs.replay_run", name="replay")
def replay_run(
    run_id: RunName,
    model: Annotated[str | None, typer.Option("--model", metavar="HANDLE", help="Another model.")] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="FILE", help="The whole system text instead; - is stdin.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send the requests of a run again, and compare the answers.

    Nothing is stored and no tool runs: the model is given the recorded results. Where it calls something else, the
    replay ends.
    """


@command(run, "runs.fork_run", name="fork")
def fork_run(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE", help="The id of a message, or its beginning.")],
    before: Annotated[bool, typer.Option("--before", help="Leave the message itself out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Begin a new conversation with a copy of what was said up to a message."""
