"""`perdure mcp ...`: arguments only; the work is done in `cli.commands.mcp`."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.exit import run_and_exit

mcp_app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="Tools of MCP servers for agents.", add_completion=False
)

Server = Annotated[str, typer.Argument(metavar="SERVER", help="Its name or id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]


@mcp_app.command("add")
def add_server(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Begins the names of its tools.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND ARG...", help="The program that it is, after two dashes.")
    ] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Where it answers.")] = None,
    sse: Annotated[bool, typer.Option("--sse", help="It speaks the older SSE.")] = False,
    token_from: Annotated[
        str | None, typer.Option("--token-from-env", metavar="VARIABLE", help="Its token, sent as a bearer's.")
    ] = None,
    headers_from: Annotated[
        list[str] | None,
        typer.Option("--header-from-env", metavar="HEADER=VARIABLE", help="A header to send, from a variable here."),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME[=secret:NAME]", help="A variable it sees: as here, or a stored secret."),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Its new tools need no approval, and its hints are believed.")
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
    from perdure.cli.commands.mcp import add_server

    run_and_exit(
        add_server(
            name=name,
            command=command or [],
            url=url,
            sse=sse,
            token_from=token_from,
            headers_from=headers_from or [],
            variables=variables or [],
            trust=trust,
            private=private,
        )
    )


@mcp_app.command("list")
def list_servers(as_json: AsJson = False) -> None:
    """List the servers and how they stand."""
    from perdure.cli.commands.mcp import list_servers

    run_and_exit(list_servers(as_json=as_json))


@mcp_app.command("tools")
def list_tools(server: Server, as_json: AsJson = False) -> None:
    """List what is known of a server's tools."""
    from perdure.cli.commands.mcp import list_tools

    run_and_exit(list_tools(server=server, as_json=as_json))


@mcp_app.command("refresh")
def refresh(server: Server) -> None:
    """Connect to a server and read its tools anew."""
    from perdure.cli.commands.mcp import refresh

    run_and_exit(refresh(server=server))


@mcp_app.command("approve")
def approve(
    server: Server,
    tools: Annotated[
        list[str] | None, typer.Argument(metavar="[TOOL...]", help="Only these; by default all that wait.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Show what has changed since it was approved, and approve it.

    Read the descriptions as you would read code: a model will follow them.
    """
    from perdure.cli.commands.mcp import approve

    run_and_exit(approve(server=server, tools=tools or None, yes=yes))


@mcp_app.command("remove")
def remove(server: Server) -> None:
    """Remove a server and its tools, which agents then have no more."""
    from perdure.cli.commands.mcp import remove

    run_and_exit(remove(server=server))
