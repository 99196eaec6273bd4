"""The commands of `perdure tool`, `perdure mcp` and `perdure secret`, and their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.run import AsJson, Yes, command


def _group(help: str) -> typer.Typer:
    """A group of commands under one name, such as `perdure tool`."""
    return typer.Typer(rich_markup_mode=None, no_args_is_help=True, help=help, add_completion=False)


tool_app = _group("Keep tools of your own, run in a sandbox.")
mcp_app = _group("Tools of MCP servers for agents.")
run_app = _group("Look into runs, and repeat them elsewhere.")
secret_app = _group("Keep values that tools need, encrypted.")

ToolName = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the tool.")]
RunName = Annotated[str, typer.Argument(metavar="ID", help="The id of the run.")]
ToolOwner = Annotated[
    str | None, typer.Option("--agent", metavar="AGENT", help="Name or id; by default the agent used last.")
]
Server = Annotated[str, typer.Argument(metavar="SERVER", help="Its name or id.")]
SecretName = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and _, like an environment variable.")]
SecretOwner = Annotated[
    str | None,
    typer.Option("--agent", metavar="AGENT", help="The agent that owns it; by default all agents may use it."),
]


@command(tool_app, "tools.add_tool", name="add")
def add_tool(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="Python; its last public function is the tool.")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Another function of the file.")] = None,
    requirements: Annotated[
        list[str] | None, typer.Option("--requirement", metavar="PACKAGE", help="A package for pip; may be repeated.")
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="A variable; secret:NAME for a secret; may be repeated."),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option("--network", metavar="HOST", help="A host it needs; '*' means every public one; may be repeated."),
    ] = None,
    approval: Annotated[bool, typer.Option("--approval", help="A person has to approve each call.")] = False,
    timeout_s: Annotated[float | None, typer.Option("--timeout", metavar="SECONDS", help="By default 30.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a tool from a file, or change the tool of that name. The file is read, not run."""


@command(tool_app, "tools.list_tools", name="list")
def list_tools(
    everything: Annotated[bool, typer.Option("--all", help="With the built-in ones.")] = False, as_json: AsJson = False
) -> None:
    """List the tools, and the agents that have them."""


@command(tool_app, "tools.show_tool", name="show")
def show_tool(name: ToolName, as_json: AsJson = False) -> None:
    """Show the description of a tool that models see, and its source."""


@command(tool_app, "tools.test_tool", name="test")
def test_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a tool, or a file that is not added yet.")],
    arguments: Annotated[str, typer.Argument(metavar="ARGS", help="A JSON object.")] = "{}",
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Run it for this agent, which must have it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a tool with arguments, as an agent would: checked, limited, in the sandbox."""


@command(tool_app, "tools.attach_tool", name="attach")
def attach_tool(name: ToolName, agent: ToolOwner = None) -> None:
    """Give a tool to an agent."""


@command(tool_app, "tools.detach_tool", name="detach")
def detach_tool(name: ToolName, agent: ToolOwner = None) -> None:
    """Take a tool from an agent."""


@command(tool_app, "tools.remove_tool", name="remove")
def remove_tool(name: ToolName) -> None:
    """Take a tool from all agents and remove it."""


@command(run_app, "runs.list_runs", name="list")
def list_runs(
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Name or id; by default of all.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""


@command(run_app, "runs.show_run", name="show")
def show_run(run_id: RunName, as_json: AsJson = False) -> None:
    """Show the time line of a run, its steps with tokens and price, and its messages."""


@command(run_app, "runs.cancel_run", name="cancel")
def cancel_run(run_id: RunName, as_json: AsJson = False) -> None:
    """Ask a run to stop."""


@command(run_app, "runs.export_run", name="export")
def export_run(run_id: RunName) -> None:
    """Print a run as JSON: messages, and steps with requests and responses. Keys are masked."""


@command(run_app, "runs.replay_run", name="replay")
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


@command(run_app, "runs.fork_run", name="fork")
def fork_run(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE", help="The id of a message.")],
    before: Annotated[bool, typer.Option("--before", help="Leave the message itself out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Begin a new conversation with a copy of what was said up to a message."""


@command(mcp_app, "mcp.add_server", name="add")
def add_server(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the server; its tools' names begin with it.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND ARG...", help="The program to run, after two dashes.")
    ] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Address of the server.")] = None,
    sse: Annotated[bool, typer.Option("--sse", help="The server uses the older SSE.")] = False,
    token_from: Annotated[
        str | None, typer.Option("--token-from-env", metavar="VARIABLE", help="Variable with the bearer token.")
    ] = None,
    headers_from: Annotated[
        list[str] | None,
        typer.Option("--header-from-env", metavar="HEADER=VARIABLE", help="A header, with the value of a variable."),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME[=secret:NAME]", help="A variable of the program: from here or a secret."),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Its new tools need no approval, and its hints are trusted.")
    ] = False,
    private: Annotated[
        bool | None,
        typer.Option(
            "--private/--public",
            help="Whether the URL may lead to this machine or a private network.",
            show_default="as it leads now",
        ),
    ] = None,
) -> None:
    """Register a server and approve the tools that it lists now.

    Secrets are read from variables of this shell or named as secret:NAME, never written as arguments; they are stored
    encrypted.
    """
    if bool(url) == bool(command):
        raise typer.BadParameter("give either --url URL, or -- and the command that runs the server")


@command(mcp_app, "mcp.list_servers", name="list")
def list_servers(as_json: AsJson = False) -> None:
    """List the servers and the state of each."""


@command(mcp_app, "mcp.list_tools", name="tools")
def list_server_tools(server: Server, as_json: AsJson = False) -> None:
    """List the tools of a server."""


@command(mcp_app, "mcp.refresh", name="refresh")
def refresh(server: Server) -> None:
    """Connect to a server and read its tools again."""


@command(mcp_app, "mcp.approve", name="approve")
def approve(
    server: Server,
    tools: Annotated[
        list[str] | None, typer.Argument(metavar="[TOOL...]", help="Only these; by default all that wait for approval.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Show what has changed in a server's tools since you approved them, and approve it.

    Read the descriptions as you would read code: a model will follow them.
    """


@command(mcp_app, "mcp.remove", name="remove")
def remove(server: Server) -> None:
    """Remove a server and its tools, also from all agents."""


@command(secret_app, "secrets.set_secret", name="set")
def set_secret(name: SecretName, agent: SecretOwner = None) -> None:
    """Create or change a secret. Its value is asked for, or read from stdin; it is never an argument.

    Tools are given it where their environment says `secret:NAME`; an agent's own go to all of its custom tools.
    """


@command(secret_app, "secrets.list_secrets", name="list")
def list_secrets(agent: SecretOwner = None, as_json: AsJson = False) -> None:
    """List the names of the secrets; values are never shown."""


@command(secret_app, "secrets.remove_secret", name="remove")
def remove_secret(name: SecretName, agent: SecretOwner = None) -> None:
    """Remove a secret."""
