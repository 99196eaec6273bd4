"""The verbs of `perdure tool`, `mcp`, `secret` and `hook`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.run import AsJson, LastAgent, Org, Yes, agent_option, command, verbs

tool, mcp, secret, hook = (verbs() for _ in range(4))

ToolName = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the tool.")]
Server = Annotated[str, typer.Argument(metavar="SERVER", help="Its name or id.")]
SecretName = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and _, like an environment variable.")]
SecretOwner = Annotated[
    str | None,
    agent_option("The agent that owns it; by default all agents may use it."),
]


@command(tool, "tools.add_tool", name="add")
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


@command(tool, "tools.list_tools", name="list")
def list_tools(
    everything: Annotated[bool, typer.Option("--all", help="With the built-in ones.")] = False, as_json: AsJson = False
) -> None:
    """List the tools, and the agents that have them."""


@command(tool, "tools.show_tool", name="show")
def show_tool(name: ToolName, as_json: AsJson = False) -> None:
    """Show the description of a tool that models see, and its source."""


@command(tool, "tools.test_tool", name="test")
def test_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a tool, or a file that is not added yet.")],
    arguments: Annotated[str, typer.Argument(metavar="ARGS", help="A JSON object.")] = "{}",
    agent: Annotated[str | None, agent_option("Run it for this agent, which must have it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a tool with arguments, as an agent would: checked, limited, in the sandbox."""


@command(tool, "tools.attach_tool", name="attach")
def attach_tool(name: ToolName, agent: LastAgent = None) -> None:
    """Give a tool to an agent."""


@command(tool, "tools.detach_tool", name="detach")
def detach_tool(name: ToolName, agent: LastAgent = None) -> None:
    """Take a tool from an agent."""


@command(tool, "tools.delete_tool", name="delete")
def delete_tool(name: ToolName, yes: Yes = False) -> None:
    """Take a tool from all agents and delete it."""


@command(mcp, "mcp.add_server", name="add")
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


@command(mcp, "mcp.list_servers", name="list")
def list_servers(as_json: AsJson = False) -> None:
    """List the servers and the state of each."""


@command(mcp, "mcp.show_server", name="show")
def show_server(server: Server, as_json: AsJson = False) -> None:
    """Show the tools of a server, and the state of each."""


@command(mcp, "mcp.refresh", name="refresh")
def refresh(server: Server) -> None:
    """Connect to a server and read its tools again."""


@command(mcp, "mcp.approve", name="approve")
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


@command(mcp, "mcp.delete", name="delete")
def delete_server(server: Server, yes: Yes = False) -> None:
    """Delete a server and its tools, also from all agents."""


@command(secret, "secrets.set_secret", name="set")
def set_secret(name: SecretName, agent: SecretOwner = None, org: Org = None) -> None:
    """Create or change a secret. Its value is asked for, or read from stdin; it is never an argument.

    Tools are given it where their environment says `secret:NAME`; an agent's own go to all of its custom tools.
    """


@command(secret, "secrets.list_secrets", name="list")
def list_secrets(agent: SecretOwner = None, org: Org = None, as_json: AsJson = False) -> None:
    """List the names of the secrets; values are never shown."""


@command(secret, "secrets.delete_secret", name="delete")
def delete_secret(name: SecretName, agent: SecretOwner = None, org: Org = None, yes: Yes = False) -> None:
    """Delete a secret."""


@command(secret, "secrets.rotate_secrets", name="rotate")
def rotate_secrets(
    forget_old: Annotated[
        bool, typer.Option("--forget-old", help="Delete the older keys of the file; older backups need them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Encrypt everything anew, with a new key: secrets, variables, keys of providers, tokens of MCP servers.

    Without PERDURE_SECRET_KEY the file secret.key beside the store gets a new key; servers that run take it by
    themselves. With it, start all servers with the new key in PERDURE_SECRET_KEY and the one before in
    PERDURE_SECRET_KEY_OLD, then call this. It covers all organisations; killed, it goes on when called again.
    """


@command(hook, "doctor.list_hooks", name="list")
def list_hooks(as_json: AsJson = False) -> None:
    """List the hooks of this machine, in the order in which they are called."""
