"""The commands of every day and their arguments. What they do is in `commands`, imported when one runs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Literal

import typer

from perdure.cli.root import Root
from perdure.cli.run import Agent, AsJson, LastAgent, NewProfile, Verb, Yes, agent_option, run_and_exit
from perdure.cli.run import old_command as command

# Without rich markup typer does not import rich, which would triple the time of `--help`.
app = typer.Typer(
    cls=Root,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="PERDURE_HOME names the data folder, PERDURE_MODEL the default model.",
)

Message = Annotated[str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Send one message and exit.")]
ChatJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for each message.")]
MemoryOwner = Annotated[str | None, agent_option("Whose memory, by name or id; by default the agent used last.")]
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
    """Agents that remember. Without a command: chat with the agent used last.

    `perdure "TEXT"` sends one message. A pipe sends each line as a message.
    """
    if context.invoked_subcommand is None:
        chat(message=message, as_json=as_json, model=model)
    elif message is not None or as_json or model is not None:
        raise typer.BadParameter(
            "--prompt, --json and --model stand after the name of the command, as in `perdure agent list --json`"
        )


@app.command(cls=Verb)
def chat(
    agent: LastAgent = None,
    message: Message = None,
    as_json: ChatJson = False,
    new: Annotated[bool, typer.Option("--new", help="Create the agent AGENT first.")] = False,
    model: NewModel = None,
    profile: NewProfile = None,
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

    made = functools.partial(chat, name=agent, new=new, model=model, profile=profile)
    run_and_exit(made(message=message, as_json=as_json, conversation=conversation, turns=turns))


@command(app, "conversations.history")
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
    """Print what was said, with tool calls and edits of memory.

    The newest stands at the end.
    """


@command(app, "search.search")
def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to search for.")],
    agent: MemoryOwner = None,
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
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only passages and facts that are `active`, `faded` or `archived`; or `all`.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many of each kind.")] = 10,
    why: Annotated[bool, typer.Option("--why", help="Show why each was found, and what ran.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search messages and archives."""
    if agent is not None and archive is not None:
        raise typer.BadParameter("it is searched by itself: leave --agent out", param_hint="--archive")


@command(app, "provenance.sources.why")
def why(
    of: Annotated[
        str, typer.Argument(metavar="ID", help="Of a run, step, message, passage, block or fact, or words of a memory.")
    ],
    agent: MemoryOwner = None,
    as_json: AsJson = False,
) -> None:
    """Show where a memory comes from, or what was behind an answer.

    Of a memory: who wrote it, and in answer to what. Of an answer: what was in its request.

    The beginning of an id is enough; block-...:3 is a line of a block.
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
    """Show where a text stands in memory and history, and take it out."""


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


@command(app, "schedules.schedules.tell_event")
def event(
    agent: Agent,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What happened, such as login or like.")],
    data: Annotated[str | None, typer.Option("--data", metavar="JSON", help="More about it: a JSON object.")] = None,
    wake: Annotated[
        bool,
        typer.Option("--wake/--note", help="Whether the agent acts now, or reads of it with its next message."),
    ] = True,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="The same key again is the same event.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell an agent that something happened, and print what it says."""


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
    cost: Annotated[
        bool, typer.Option("--cost", help="Show what the conversation's requests and summaries cost.")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the plot of --cost to a file, too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what fills the context window, what a model was sent, and what it cost.

    Requests are built again from the log, byte for byte.
    """
    if cost and (diff is not None or step is not None or raw):
        raise typer.BadParameter("it is about the whole conversation: leave --step, --diff and --raw out")
    if svg is not None and not cost:
        raise typer.BadParameter("it is the plot of --cost: add --cost", param_hint="--svg")
    if diff is not None and (step is not None or raw):
        raise typer.BadParameter("it names its two steps itself: leave --step and --raw out", param_hint="--diff")
    if raw and as_json:
        raise typer.BadParameter("it prints JSON lines already: leave --json out", param_hint="--raw")


@command(app, "compress.compress_file")
def compress(
    file: Annotated[str, typer.Argument(help="What a tool printed; -: stdin.")],
    level: Annotated[
        Literal["lossless", "full"],
        typer.Option("--level", help="lossless keeps everything; full also leaves out what is typical."),
    ] = "full",
    budget: Annotated[
        int | None,
        typer.Option("--budget", metavar="TOKENS", min=0, help="Above this, full leaves something out."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a tool's output in fewer tokens, as an agent sees it."""


@app.command(cls=Verb)
def serve(
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen; by default on this machine only.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="By default 8283; 0: any free port.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=256, help="How many processes serve; by default 1.")
    ] = None,
    worker: Annotated[str | None, typer.Option("--worker", hidden=True)] = None,
) -> None:
    """Serve the agents over HTTP, as letta-client speaks it. Ctrl-C stops."""
    from perdure.cli.commands.serve import serve
    from perdure.server.serve import loop_factory

    work = serve(host=host, port=port, workers=workers, worker=worker)
    run_and_exit(work, loop_factory=loop_factory())


@app.command(cls=Verb)
def ui(
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Where the server listens.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65_535, help="By default 8283.")] = None,
    browse: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page, or print its address.")] = True,
) -> None:
    """Open the dashboard in a browser, and serve it if nobody does."""
    from perdure.cli.commands.serve import ui
    from perdure.server.serve import loop_factory

    run_and_exit(ui(host=host, port=port, browse=browse), loop_factory=loop_factory())


@command(app, "database.copies.backup")
def backup(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The file to make.")],
    as_json: AsJson = False,
) -> None:
    """Copy the store as it is now to a new file, while agents work."""


@command(app, "database.copies.restore")
def restore(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file that `perdure backup` has made.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup in the place of the store. The old one is kept."""


@command(app, "database.copies.migrate_db", name="migrate-db")
def migrate_db(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A file or postgresql://...")],
    target: Annotated[str, typer.Argument(metavar="TO", help="An empty database, or a file that is made.")],
    as_json: AsJson = False,
) -> None:
    """Copy a store to another database, such as PostgreSQL. Killed, it goes on where it was."""


@command(app, "doctor.doctor")
def doctor(as_json: AsJson = False) -> None:
    """Check models, data and ports, and say what helps. Exit code 1: something is broken."""
