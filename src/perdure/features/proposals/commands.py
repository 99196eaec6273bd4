"""`perdure proposal`: what agents propose to change of their memory; `perdure memory protect`."""

from __future__ import annotations

from typing import Annotated, Any

from perdure.cli.commands.run import LastAgent, argument, command, flag, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import get_agent
    from perdure.cli.views.json import block_shape, fields
    from perdure.cli.views.render import diff_view
    from perdure.cli.views.view import Output, fold, local_time, new_table, visible
    from perdure.features.proposals.values import Proposal
    from perdure.library.perdure import AsyncPerdure

Number = Annotated[int, argument("Its number in the list.", "NUMBER", min=1)]

NONE_OPEN = "No proposal waits. An agent with the tool `propose_change` can make some."
SHOWN = 1_000
REASON_WIDTH = 60


@command("proposal list", none=NONE_OPEN)
async def list_proposals(
    view: Output,
    perdure: AsyncPerdure,
    agent: Annotated[str | None, argument("Name or id; by default all agents.", "AGENT")] = None,
    everything: Annotated[bool, flag("--all", "Include those that were decided.")] = False,
) -> None:
    """List the changes of memory that agents propose and that wait for you."""
    proposals = perdure.proposals if agent is None else (await get_agent(view, perdure, agent)).proposals
    found = await proposals.list(state=None if everything else "open", limit=SHOWN)
    names = {agent_id: (await perdure.agent(agent_id)).name for agent_id in {one.agent_id for one in found}}
    table = new_table("number", "agent", "what", "state", "since", "reason", styles={"reason": "dim"})
    for one in found:
        row = (str(one.number), names[one.agent_id], one.label, one.state, local_time(one.created_at))
        table.add_row(*map(visible, row), fold(visible(one.reason), REASON_WIDTH))
    view.show([_shape(one, names[one.agent_id]) for one in found], table if found else NONE_OPEN)
    if found:
        view.hint("`perdure proposal show NUMBER AGENT` shows the difference")


@command("proposal show")
async def show_proposal(view: Output, number: Number, agent: LastAgent) -> None:
    """Show a proposal: what would change, why, and what became of it."""
    _show(view, await agent.proposals.get(number), agent.name)


@command("proposal approve", change=True)
async def approve_proposal(view: Output, number: Number, agent: LastAgent) -> None:
    """Apply a proposal."""
    _show(view, await agent.proposals.approve(number), agent.name)


@command("proposal refuse", change=True)
async def refuse_proposal(
    view: Output,
    number: Number,
    agent: LastAgent,
    reason: Annotated[str, option("Why; the agent reads it if it proposes the same again.", "TEXT")] = "",
) -> None:
    """Refuse a proposal; an equal one is not taken again."""
    _show(view, await agent.proposals.refuse(number, reason), agent.name)


@command("memory protect", change=True)
async def protect_block(
    view: Output,
    label: Annotated[str, argument("Label of the block, such as policy.", "LABEL")],
    agent: LastAgent,
    off: Annotated[bool, flag("--off", "Let the agent change it again.")] = False,
) -> None:
    """Let only people change a memory block; the agent can propose changes."""
    block = await agent.proposals.protect(label, on=not off)
    who = "Only people change" if block.is_protected else "The agent may change"
    view.show(block_shape(block) | {"protected": block.is_protected}, f"{who} {visible(block.label)!r} now.")


def _show(view: Output, one: Proposal, agent: str) -> None:
    """Show a proposal with its difference."""
    head = f"proposal {one.number}  {agent}  {one.label}  {one.state}"
    lines = [Text(visible(head), style="bold"), diff_view(one.diff)]
    lines += [Text(visible(f"reason: {one.reason}")), Text(visible(f"evidence: {one.evidence}"))]
    if one.decided_at is not None:
        words = f": {one.decision}" if one.decision else ""
        lines.append(Text(visible(f"{one.state} {local_time(one.decided_at)}{words}"), style="dim"))
    view.show(_shape(one, agent), *lines)
    if one.state == "open":
        words = f"{one.number} {shell_word(agent)}"
        view.hint(f"`perdure proposal approve {words}` applies it, `perdure proposal refuse {words}` does not")


def _shape(one: Proposal, agent: str) -> dict[str, Any]:
    """A proposal as `--json` prints it; `agent` is the name of its agent."""
    names = ("agent_id", "number", "label", "state", "reason", "evidence", "diff", "new_value", "base_version")
    return {"agent": agent} | fields(one, *names, "created_at", "decided_at", "decided_by", "decision", "version")
