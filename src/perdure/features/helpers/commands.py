"""`perdure helper`: look at the helpers of an agent, and at the models on which they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from perdure.cli.commands.run import LastAgent, argument, command, for_work

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.views.view import Output, new_table, visible
    from perdure.features.helpers.catalog import RUN_HELPER, Roster
    from perdure.features.helpers.wire import HelperRouteShape, HelperShape
    from perdure.library.agent import AsyncAgent


@command("helper list")
async def list_helpers(view: Output, agent: LastAgent) -> None:
    """List the helpers that an agent may call."""
    roster = await agent.helpers.roster()
    table = new_table("helper", "from", "memory", "what it does", styles={"helper": "bold", "from": "dim"})
    for helper in roster.by_name.values():
        about = f"can't be called: {helper.problem}" if helper.problem else helper.definition.description
        style = "yellow" if helper.problem else ""
        table.add_row(visible(helper.name), helper.layer, helper.memory, Text(visible(about), style=style))
    view.show([HelperShape.make(one) for one in roster.by_name.values()], table, *_problems(roster))
    await _hint_tool(view, agent, "`perdure helper routes` shows their models")


@command("helper show", finds="helper")
async def show_helper(
    view: Output, name: Annotated[str, argument("Its exact name.", "NAME")], agent: LastAgent
) -> None:
    """Show a helper: where it is from, its tools, its prompt."""
    helper = await agent.helpers.get(name)
    shape = HelperShape.make(helper)
    texts = {key: ", ".join(map(str, one)) if isinstance(one, list) else one for key, one in shape.items() if one}
    lines = [f"{key.replace('_', ' ')}: {text}" for key, text in texts.items() if key != "prompt"]
    view.show(shape, *map(visible, lines), Text(visible(shape["prompt"] or "(no prompt of its own)")))


@command("helper routes")
async def show_routes(view: Output, agent: LastAgent) -> None:
    """Show on which model each helper runs, and why."""
    table = new_table("helper", "definition", "model", "why", styles={"helper": "bold", "definition": "dim"})
    routes, roster = await agent.helpers.routes(), await agent.helpers.roster()
    for route in routes:
        style = "" if route.model else "yellow"
        row = (route.name, route.wish or "-", route.model or "none", route.reason)
        table.add_row(*(Text(visible(text), style=style) for text in row))
    view.show([HelperRouteShape.make(route) for route in routes], table, *_problems(roster))
    view.hint("PERDURE_SUBAGENT_MODEL sets the model of all; a call may name another one")


def _problems(roster: Roster) -> Sequence[Text]:
    """Lines about the definitions that can't be used, each with the reason."""
    lines = [*map(str, roster.found.problems), *(f"{one.name}: the policy forbids it" for one in roster.found.denied)]
    return [Text(visible(line), style="yellow") for line in lines]


async def _hint_tool(view: Output, agent: AsyncAgent, hint: str) -> None:
    """Show a hint; for an agent that can call no helper, how it gets the tool."""
    if any(tool.name == RUN_HELPER for tool in await agent.tools.list()):
        view.hint(hint)
    else:
        view.hint(f"it can't call them yet: `perdure tool attach {RUN_HELPER} {shell_word(agent.name)}`")
