"""The commands and their arguments. What they do is in `commands`, imported when one runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perdure.cli.groups import mcp_app, run_app, secret_app, tool_app
from perdure.cli.run import Agent, AsJson, LastAgent, Yes, command, run_and_exit

_COMMAND_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


class _Commands(TyperGroup):
    """The commands; an argument that can't be a command's name is a message to the agent used last."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if not _COMMAND_NAME.fullmatch(args[0]):
            args = ["chat", "--prompt", *args]
        return super().resolve_command(ctx, args)


# Without rich markup typer does not import rich, which would triple the time of `--help`.
app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="PERDURE_HOME names the data folder, PERDURE_MODEL the default model; without it, doctor tells which.",
)
app.add_typer(secret_app, name="secret")
app.add_typer(tool_app, name="tool")
app.add_typer(run_app, name="run")
app.add_typer(mcp_app, name="mcp")


Message = Annotated[str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Send one message and exit.")]
ChatJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for each message.")]
NewModel = Annotated[
    str | None, typer.Option("--model", metavar="HANDLE", help="The model of the new agent, as provider/name.")
]


def _version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        typer.echo(f"perdure {version('perdure')}")
    except PackageNotFoundError:
        typer.echo("perdure (not installed)")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    message: Message = None,
    as_json: ChatJson = False,
    model: NewModel = None,
) -> None:
    """Agents that remember. Without a command: chat with the agent used last; the first time, create one.

    `perdure "TEXT"` sends one message. When stdin is no terminal, each of its lines is a message.
    """
    if context.invoked_subcommand is None:
        chat(message=message, as_json=as_json, model=model)
    elif message is not None or as_json or model is not None:
        raise typer.BadParameter(
            "--prompt, --json and --model stand after the name of the command, as in"
            f" `perdure {context.invoked_subcommand} --json`"
        )


@app.command()
def chat(
    agent: LastAgent = None,
    message: Message = None,
    as_json: ChatJson = False,
    new: Annotated[bool, typer.Option("--new", help="Create the agent AGENT first.")] = False,
    model: NewModel = None,
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", metavar="NUMBER", help="A number or id; by default the one used last."),
    ] = None,
    turns: Annotated[int, typer.Option("--turns", min=0, max=20, help="How many of the last turns to show.")] = 3,
) -> None:
    """Chat with an agent. Lines on stdin are messages when it is no terminal.

    Lines that begin with a slash are commands; /help lists them.
    """
    if new and not agent:
        raise typer.BadParameter("it needs the name of the agent to make: perdure chat NAME --new", param_hint="--new")
    if new and conversation is not None:
        raise typer.BadParameter("an agent that is made has none yet: leave it out", param_hint="--conversation")
    from perdure.cli.chat.chat import chat

    run_and_exit(
        chat(name=agent, new=new, model=model, message=message, as_json=as_json, conversation=conversation, turns=turns)
    )


@command(app, "history.history")
def history(
    agent: LastAgent = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Only from this date on, such as 2026-11-20.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, max=10_000, help="How many messages; by default 100, or all since.")
    ] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="NUMBER", help="A number or id; by default all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what was said, newest at the end, with tool calls and edits of memory."""


@command(app, "conversations.conversations")
def conversations(
    agent: LastAgent = None,
    rename: Annotated[
        tuple[str, str] | None, typer.Option("--rename", metavar="NUMBER NAME", help="Name a conversation.")
    ] = None,
    delete: Annotated[
        str | None, typer.Option("--delete", metavar="NUMBER", help="Hide one from every list, search and view.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List an agent's conversations, oldest first, or change one of them."""


@command(app, "agents.agents")
def agents(
    delete: Annotated[
        str | None, typer.Option("--delete", metavar="AGENT", help="Remove one with its whole history.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the agents, the one used last first."""


@command(app, "approvals.approvals")
def approvals(as_json: AsJson = False) -> None:
    """List the tool calls that wait for a person, or for the program that sent the message."""


OfCall = Annotated[str | None, typer.Argument(metavar="CALL", help="By default all that wait.")]
InConversation = Annotated[
    str | None,
    typer.Option("--conversation", metavar="ID", help="Where the call waits; 'default' is the first one."),
]


@command(app, "approvals.approve")
def approve(
    agent: Agent,
    call: OfCall = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Arguments in place of the model's.")
    ] = None,
    conversation: InConversation = None,
) -> None:
    """Approve waiting calls of an agent, and print its answer."""


@command(app, "approvals.deny")
def deny(
    agent: Agent,
    call: OfCall = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Sent to the agent.")] = None,
    conversation: InConversation = None,
) -> None:
    """Refuse waiting calls of an agent, and print its answer."""


@command(app, "approvals.cancel")
def cancel(
    agent: Agent,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="ID", help="Only this one; 'default' is the first one.")
    ] = None,
) -> None:
    """Cancel the runs of an agent and its waiting calls. No model is called."""


@command(app, "agents.reset")
def reset(
    agent: Agent,
    yes: Yes = False,
) -> None:
    """Take the old messages of an agent out of its view, for good; its memory stays.

    Memory blocks, archives and files stay, and so does the log.
    """


@command(app, "forget.forget")
def forget(
    agent: Agent,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text, or the id of a message or passage.")],
    erase: Annotated[
        bool, typer.Option("--erase", help="Remove it from the store's file too, with old versions. No undo.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show where a text stands in an agent's memory and history, and take it out."""


@command(app, "forget.undo")
def undo(
    agent: Agent,
    number: Annotated[
        int | None, typer.Argument(metavar="NUMBER", help="Which correction; by default the last.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the corrections instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Undo what was forgotten or corrected in an agent."""


@command(app, "hooks.list_hooks")
def hooks(as_json: AsJson = False) -> None:
    """List the hooks of this machine, in the order in which they are called."""


@command(app, "context.context")
def context(
    agent: LastAgent = None,
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="STEP", help="Explain one request: an id, its beginning, last, last-1, ..."),
    ] = None,
    diff: Annotated[
        tuple[str, str] | None, typer.Option("--diff", metavar="STEP STEP", help="Compare the requests of two steps.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the request of --step, or the last, in its canonical form.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what fills the context window, and what a model was sent.

    Requests are built again from the log, byte for byte.
    """
    if diff is not None and (step is not None or raw):
        raise typer.BadParameter("it names its two steps itself: leave --step and --raw out", param_hint="--diff")
    if raw and as_json:
        raise typer.BadParameter("it prints JSON lines already: leave --json out", param_hint="--raw")


@command(app, "archives.archives")
def archives(
    attach: Annotated[
        tuple[str, str] | None,
        typer.Option("--attach", metavar="ARCHIVE AGENT", help="Let an agent search an archive."),
    ] = None,
    detach: Annotated[
        tuple[str, str] | None, typer.Option("--detach", metavar="ARCHIVE AGENT", help="Take one from an agent.")
    ] = None,
    delete: Annotated[
        str | None, typer.Option("--delete", metavar="ARCHIVE", help="Remove one with its passages.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the archives and which agents have them, or change one of them."""


@command(app, "search.search")
def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to search for.")],
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="AGENT", help="Whose memory, by name or id; by default the agent used last."),
    ] = None,
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="ARCHIVE", help="Only this archive, by name or id.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="Only passages with it; several: with any of them.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Only from this date on, such as 2026-11-20.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="DATE", help="Only up to this date, that day included.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many of each kind.")] = 10,
    why: Annotated[bool, typer.Option("--why", help="Show why each was found, and what ran.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search messages and archives."""
    if agent is not None and archive is not None:
        raise typer.BadParameter("it is searched by itself: leave --agent out", param_hint="--archive")


@command(app, "why.why")
def why(
    of: Annotated[
        str, typer.Argument(metavar="ID", help="Of a run, step, message, passage or block, or words of a memory.")
    ],
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="AGENT", help="Whose memory, by name or id; by default the agent used last."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show who wrote a memory and in answer to what, or what was in the request behind an answer.

    The beginning of an id is enough; block-...:3 is a line of a block.
    """


@command(app, "transfer.export_archives", name="export")
def export_archives(
    names: Annotated[
        list[str],
        typer.Argument(metavar="[ARCHIVE] FILE", help="The archive, by name or id, and the file (- is stdout)."),
    ],
    every: Annotated[bool, typer.Option("--all", help="All archives, into one file.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
) -> None:
    """Write an archive as lines of JSON."""
    if len(names) != 2 - every:
        raise typer.BadParameter("write `perdure export ARCHIVE FILE`, or `perdure export --all FILE`")


@command(app, "transfer.import_archives", name="import")
def import_archives(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of `perdure export`; - is stdin.")],
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="ARCHIVE", help="Put everything into this one; by default each into its own."),
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="Let this agent search them.")] = None,
) -> None:
    """Read archives from lines of JSON. Passages that are there already are skipped."""


@command(app, "transfer.import_messages", name="import-messages")
def import_messages(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Whose history, by name or id.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="One JSON object a line, oldest first; - is stdin.")],
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", metavar="ID", help="Where they go: `new` creates one. By default the first."),
    ] = None,
) -> None:
    """Add messages from elsewhere to the history of an agent.

    Each line has "role" (user, assistant or system), "text" and "occurred_at" (with a zone), and may have "name" (who
    spoke) and "id". What is there already is skipped.
    """


@command(app, "serve.key")
def key() -> None:
    """Print the API key that the server asks for, such as the one of PERDURE_API_KEY=auto."""


@app.command()
def serve(
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen; by default on this machine only.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="By default 8283; 0: any free port.")
    ] = None,
) -> None:
    """Serve the agents over HTTP, as letta-client speaks it. Ctrl-C stops."""
    from perdure.cli.commands.serve import serve
    from perdure.server.serve import loop_factory

    run_and_exit(serve(host=host, port=port), loop_factory=loop_factory())


@app.command()
def ui(
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Where the server listens.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65_535, help="By default 8283.")] = None,
    browse: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page, or print its address.")] = True,
) -> None:
    """Open the dashboard in a browser, and serve it if nobody does."""
    from perdure.cli.commands.serve import ui
    from perdure.server.serve import loop_factory

    run_and_exit(ui(host=host, port=port, browse=browse), loop_factory=loop_factory())


@command(app, "doctor.doctor")
def doctor(as_json: AsJson = False) -> None:
    """Check models, data and ports, and say what helps. Exit code 1: something is broken."""


@command(app, "upkeep.reindex")
def reindex(
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="ARCHIVE", help="The passages of this archive, by name or id.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="The messages of this agent, by name or id.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Embed also texts that have a vector.")] = False,
) -> None:
    """Embed texts that have no vector of the current embedder; by default all texts.

    It can be stopped and started again at any time; searches go on with what is there.
    """


@command(app, "folders.upload")
def upload(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or whole directories.")],
    folder: Annotated[
        str | None,
        typer.Option("--folder", metavar="NAME", help="The folder; by default named as the directory."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Give the folder to this agent, by name or id.")
    ] = None,
) -> None:
    """Add files to a folder that agents read. A file that is there with the same bytes stays as it is.

    Of directories, version control, packages of others and what is no text are left out.
    """


@command(app, "folders.folders")
def folders(
    attach: Annotated[
        tuple[str, str] | None, typer.Option("--attach", metavar="FOLDER AGENT", help="Let an agent read one.")
    ] = None,
    detach: Annotated[
        tuple[str, str] | None, typer.Option("--detach", metavar="FOLDER AGENT", help="Take one from an agent.")
    ] = None,
    delete: Annotated[str | None, typer.Option("--delete", metavar="FOLDER", help="Remove one with its files.")] = None,
    yes: Yes = False,
) -> None:
    """List the folders of files, or change one of them."""


@command(app, "folders.files")
def files(
    name: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder; or an agent, for its open files.")],
    delete: Annotated[str | None, typer.Option("--delete", metavar="FILE", help="Remove a file of the folder.")] = None,
    yes: Yes = False,
) -> None:
    """List the files of a folder, and the progress of each."""


@command(app, "upkeep.verify")
def verify(
    repair: Annotated[bool, typer.Option("--repair", help="Rebuild indexes, vectors and counts that differ.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue with the rest of a store whose log is gone.")
    ] = False,
) -> None:
    """Look for damage, and compare the search indexes, vectors and counts with the stored texts.

    Exit code 1: something is damaged or differs, and was not repaired.
    """
