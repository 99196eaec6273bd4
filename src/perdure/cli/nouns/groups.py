"""The verbs of `perdure group` and `perdure companion`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from perdure.cli.run import AsJson, LastAgent, Yes, agent_names, agent_option, command, group_names, verbs

group, companion = verbs(), verbs()

Kind = Literal["round_robin", "supervisor", "dynamic"]
GroupName = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="Its id, the beginning of it, or its description.", autocompletion=group_names
    ),
]
Manager = Annotated[
    str | None, agent_option("Who answers (supervisor) or chooses who speaks (dynamic).", name="--manager")
]
Description = Annotated[str | None, typer.Option("--description", metavar="TEXT", help="What it is for.")]
MaxTurns = Annotated[
    int | None, typer.Option("--max-turns", min=1, help="How often its agents may speak after one message.")
]
Token = Annotated[
    str | None,
    typer.Option("--termination-token", metavar="TEXT", help="What ends a dynamic turn; by default DONE!."),
]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", min=1, help="Tokens, in and out, after one message.")]
MaxCost = Annotated[float | None, typer.Option("--max-cost", metavar="USD", help="What one message may cost.")]


@command(group, "groups.groups.list_groups", name="list")
def list_groups(as_json: AsJson = False) -> None:
    """List the groups, newest first."""


@command(group, "groups.groups.show")
def show(
    group: GroupName,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How much of the transcript.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show a group's agents and settings, and who said what, the newest last."""


@command(group, "groups.groups.create")
def create(
    kind: Annotated[
        Kind,
        typer.Argument(
            metavar="KIND", help="round_robin: one after the other; supervisor: all, then it; dynamic: as it chooses."
        ),
    ],
    agents: Annotated[list[str], typer.Argument(metavar="AGENT...", help="Names or ids.", autocompletion=agent_names)],
    manager: Manager = None,
    description: Description = None,
    max_turns: MaxTurns = None,
    termination_token: Token = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    as_json: AsJson = False,
) -> None:
    """Create a group of agents that answer together."""
    if manager is None and kind != "round_robin":
        raise typer.BadParameter(f"a {kind} group needs an agent that leads it: add --manager AGENT")
    if manager is not None and kind == "round_robin":
        raise typer.BadParameter(
            "a round_robin group has none: leave it out, or create another kind", param_hint="--manager"
        )


@command(group, "groups.groups.update")
def update(
    group: GroupName,
    agents: Annotated[
        list[str] | None,
        typer.Argument(metavar="[AGENT]...", help="All its agents from now on.", autocompletion=agent_names),
    ] = None,
    manager: Manager = None,
    description: Description = None,
    max_turns: MaxTurns = None,
    termination_token: Token = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    as_json: AsJson = False,
) -> None:
    """Change a group: its agents, its manager, its limits."""


@command(group, "groups.groups.send")
def send(
    group: GroupName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message; - reads stdin.")],
    as_json: AsJson = False,
) -> None:
    """Send a message to a group, and show who answers what."""


@command(group, "groups.groups.cancel")
def cancel(group: GroupName, as_json: AsJson = False) -> None:
    """End what goes on in a group; what was said stays."""


@command(group, "groups.groups.reset")
def reset(group: GroupName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Begin a group's transcript anew, for good; its agents' other conversations stay."""


@command(group, "groups.groups.delete")
def delete(group: GroupName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a group with its transcript, for good; its agents stay."""


@command(companion, "groups.companions.list_companions", name="list")
def list_companions(as_json: AsJson = False) -> None:
    """List the agents with a companion, which tidies their memory while nobody waits."""


@command(companion, "groups.companions.show", name="show")
def show_companion(
    agent: LastAgent = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many passes.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show the passes of an agent's companion: what each changed and why, the newest last."""


@command(companion, "groups.companions.wake")
def wake(agent: LastAgent = None, as_json: AsJson = False) -> None:
    """Have a companion read what is new now, and show what it changes."""


@command(companion, "groups.companions.on")
def on(agent: LastAgent = None, as_json: AsJson = False) -> None:
    """Give an agent a companion, which shares its memory blocks."""


@command(companion, "groups.companions.off")
def off(agent: LastAgent = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete the companion of an agent; what it wrote into memory stays."""


@command(companion, "groups.companions.update", name="update")
def update_companion(
    agent: LastAgent = None,
    frequency: Annotated[int | None, typer.Option("--frequency", min=1, help="Wake after so many turns.")] = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", min=1, help="Model calls of a pass.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="Tokens, in and out, of a pass.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change how often a companion wakes, and what a pass may take."""
    if frequency is None and max_steps is None and max_tokens is None:
        raise typer.BadParameter("nothing to change: give --frequency, --max-steps or --max-tokens")
