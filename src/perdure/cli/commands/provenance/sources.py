"""`perdure source`: what an agent's memory came from, and taking all from one source back; `perdure memory revert`;
`perdure why`: where a memory or an answer comes from.
"""

from __future__ import annotations

from typing import Annotated

from perdure.cli.run import Agent, LastAgent, Yes, agent_option, argument, command, flag, for_work, option

if for_work(__name__):
    from rich.console import RenderableType
    from rich.padding import Padding
    from rich.text import Text

    from perdure.cli.chat.agent_choice import shell_word
    from perdure.cli.chat.render import diff_view
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import View, fold, local_time, new_table, plural, visible
    from perdure.cli.views.why import origin_view
    from perdure.cli.work import NO_AGENT, confirm, get_agent, named_agent, no_agent, open_store
    from perdure.core.errors import NotFound
    from perdure.core.provenance.sources import RevertResult, SourceSummary, WriteText
    from perdure.library.agent import AsyncAgent
    from perdure.library.origins.sources import revert_shape, source_shape, write_shape
    from perdure.library.origins.values import Origin, origin_shape
    from perdure.library.origins.why import is_id_start

MemoryOwner = Annotated[str | None, agent_option("Whose memory, by name or id; by default the agent used last.")]

SourceName = Annotated[str, argument("As in the list, such as web:https://example.com, or the id of a run.", "SOURCE")]
DryRun = Annotated[bool, flag("--dry-run", "Only say what would be taken back.")]
Limit = Annotated[int, option("How many.", name="--limit", min=1, max=1_000)]

TEXT_CHARS, NAME_CHARS = 400, 80


@command("memory revert")
async def revert_writes(
    view: View,
    agent: Agent,
    writes: Annotated[
        list[str], argument("A version of a block as block-…@3, or the id of a passage or episode.", "WRITE...")
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Take writes of an agent's memory back. `perdure undo` brings them back."""
    async with named_agent(view, agent, change=True) as (_, target):
        plan = await target.sources.revert_writes(writes, dry_run=True)
        if _ask(view, plan, dry_run=dry_run, yes=yes):
            _show_result(view, target, await target.sources.revert_writes(writes))


def _counts(one: SourceSummary) -> list[str]:
    return [f"{count:,}" if count else "-" for count in (one.blocks, one.passages, one.facts, one.reverted)]


@command("source list")
async def list_sources(view: View, agent: LastAgent = None, limit: Limit = 100) -> None:
    """List what the memory of an agent came from: web pages, files, MCP servers, tools, agents, imports."""
    async with named_agent(view, agent, empty=no_agent(agent)) as (_, target):
        found = await target.sources.list(limit=limit)
    table = new_table(
        "source", "blocks", "passages", "facts", "reverted", "last", right=("blocks", "passages", "facts", "reverted")
    )
    for one in found:
        title = f" ({visible(one.title)})" if one.title else ""
        name = fold(visible(str(one.source)), NAME_CHARS) + title
        table.add_row(name, *_counts(one), local_time(one.last_at))
    view.show([source_shape(one, fields) for one in found], *([table] if found else []))
    name = shell_word(target.name)
    view.hint(
        f"`perdure source show {name} SOURCE` prints what came from one."
        if found
        else "The agent has written nothing into its memory yet."
    )


def _write_view(one: WriteText) -> list[RenderableType]:
    """A write: what it is in, when it was made, and what it says."""
    write = one.write
    reverted = write.reverted_by is not None
    state = "" if one.stands else "  reverted" if reverted else "  not there any more"
    parts: list[RenderableType] = [
        Text.assemble(
            (f"{write.kind} {visible(one.name)}", "bold"),
            (f"  {write.label}", "yellow"),
            (f"  {write.id}  {local_time(write.created_at)}", "dim"),
            (state, "dim"),
        )
    ]
    if one.text and write.kind == "block":
        parts.append(diff_view(one.text))
    elif one.text:
        parts.append(Padding(Text(fold(visible(one.text), TEXT_CHARS)), (0, 0, 0, 2)))
    return parts


@command("source show")
async def show_source(view: View, agent: Agent, source: SourceName, limit: Limit = 100) -> None:
    """Show the blocks, passages and facts that came from one source, or were written in one run."""
    async with named_agent(view, agent) as (_, target):
        writes = await target.sources.show(source, limit=limit)
    parts = [part for one in writes for part in _write_view(one)]
    view.show(
        [write_shape(one, fields) for one in writes], *(parts or [Text("Nothing in its memory came from there.")])
    )
    if any(one.stands for one in writes):
        command = f"perdure source revert {shell_word(target.name)} {shell_word(source)}"
        view.hint(f"`{command}` takes all of it back, and can be undone.")


@command("source revert")
async def revert_source(
    view: View, agent: Agent, source: SourceName, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Take back all that came from one source or run. `perdure undo` brings it back."""
    async with named_agent(view, agent, change=True) as (_, target):
        plan = await target.sources.revert(source, dry_run=True)
        if _ask(view, plan, dry_run=dry_run, yes=yes):
            _show_result(view, target, await target.sources.revert(source))


def _ask(view: View, plan: RevertResult, *, dry_run: bool, yes: bool) -> bool:
    """Show what a revert would do; whether to go on."""
    if dry_run or not plan.writes:
        view.show(revert_shape(plan, fields), *_result_view(plan))
        return False
    view.print(*_result_view(plan))
    confirm(view, f"Take {plural(len(plan.writes), 'write')} back?", action="take writes back", yes=yes)
    return True


def _show_result(view: View, agent: AsyncAgent, result: RevertResult) -> None:
    view.show(revert_shape(result, fields), *_result_view(result))
    if result.correction is not None:
        view.hint(f"`perdure undo {shell_word(agent.name)} {result.correction}` brings it back.")


def _result_view(result: RevertResult) -> list[RenderableType]:
    """What a revert took back, or would, and what it could not."""
    if not result.writes and not result.conflicts:
        return [Text("Nothing that came from there is left.")]
    verb = "Would take back" if result.is_dry_run else "Took back"
    counts = (
        plural(result.blocks, "edit of blocks", "edits of blocks"),
        plural(result.passages, "passage"),
        plural(result.facts, "fact"),
    )
    parts: list[RenderableType] = [Text(f"{verb} {', '.join(counts)}.")]
    for conflict in result.conflicts:
        parts.append(Text(f"conflict in {conflict.write_id}: {visible(conflict.reason)}", style="yellow"))
        parts.append(Padding(Text(visible(conflict.merged)), (0, 0, 0, 2)))
    return parts


@command("why")
async def why(
    view: View,
    of: Annotated[str, argument("Of a run, step, message, passage, block or fact, or words of a memory.", "ID")],
    agent: MemoryOwner = None,
) -> None:
    """Show where a memory comes from, or what was behind an answer.

    Of a memory: who wrote it, and in answer to what. Of an answer: what was in its request.

    The beginning of an id is enough; block-...:3 is a line of a block.
    """
    async with open_store(view, empty=NotFound("memory or answer", of, hint=NO_AGENT)) as perdure:
        owner = await perdure.last_agent() if agent is None else await get_agent(view, perdure, agent)
        if agent is None and is_id_start(of):
            origin = await perdure.origins.why(of)
        elif owner is None:
            raise NotFound("memory or answer", of, hint=NO_AGENT)
        else:
            origin = await owner.why(of)
        show_origin(view, origin)


def show_origin(view: View, origin: Origin) -> None:
    """Show an origin."""
    view.show({"why": origin_shape(origin)}, *origin_view(origin))
    view.hint("`perdure why ID` opens each of these ids")
