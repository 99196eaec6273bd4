"""`perdure tool ...`: arguments only; the work is done in `cli.commands.tools`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.exit import run_and_exit

tool_app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="Keep tools of your own, run in a sandbox.", add_completion=False
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the tool.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Owner = Annotated[
    str | None, typer.Option("--agent", metavar="AGENT", help="Name or id; by default the agent used last.")
]


@tool_app.command("add")
def add_tool(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="Python; its last public function is the tool.")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Another function of the file.")] = None,
    requirements: Annotated[
        list[str] | None, typer.Option("--requirement", metavar="PACKAGE", help="As pip has it; may be repeated.")
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="A variable; secret:NAME for a secret; may be repeated."),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option("--network", metavar="HOST", help="A host it needs; '*' for every public one; may be repeated."),
    ] = None,
    approval: Annotated[bool, typer.Option("--approval", help="A person has to approve each call.")] = False,
    timeout_s: Annotated[float | None, typer.Option("--timeout", metavar="SECONDS", help="By default 30.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a tool of a file, or change the one of its name. The file is read, not run."""
    from perdure.cli.commands.tools import add_tool

    run_and_exit(
        add_tool(
            file,
            name=name,
            requirements=requirements or [],
            environment=environment or [],
            network=network or [],
            requires_approval=approval,
            timeout_s=timeout_s,
            as_json=as_json,
        )
    )


@tool_app.command("list")
def list_tools(
    everything: Annotated[bool, typer.Option("--all", help="With the built-in ones.")] = False, as_json: AsJson = False
) -> None:
    """List the tools, and who has them."""
    from perdure.cli.commands.tools import list_tools

    run_and_exit(list_tools(everything=everything, as_json=as_json))


@tool_app.command("show")
def show_tool(name: Name, as_json: AsJson = False) -> None:
    """Show what a model is told of a tool, and its source."""
    from perdure.cli.commands.tools import show_tool

    run_and_exit(show_tool(name, as_json=as_json))


@tool_app.command("test")
def test_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a tool, or a file that is not added yet.")],
    arguments: Annotated[str, typer.Argument(metavar="ARGS", help="A JSON object.")] = "{}",
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Run it for this agent, which has it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a tool with arguments, as an agent would: checked, limited, in the sandbox."""
    from perdure.cli.commands.tools import test_tool

    run_and_exit(test_tool(name, arguments, agent=agent, as_json=as_json))


@tool_app.command("attach")
def attach_tool(name: Name, agent: Owner = None) -> None:
    """Give a tool to an agent."""
    from perdure.cli.commands.tools import attach_tool

    run_and_exit(attach_tool(name, agent=agent))


@tool_app.command("detach")
def detach_tool(name: Name, agent: Owner = None) -> None:
    """Take a tool from an agent."""
    from perdure.cli.commands.tools import detach_tool

    run_and_exit(detach_tool(name, agent=agent))


@tool_app.command("remove")
def remove_tool(name: Name) -> None:
    """Take a tool from all agents and remove it."""
    from perdure.cli.commands.tools import remove_tool

    run_and_exit(remove_tool(name))
