"""`perdure archive`: list archives with their agents; attach or delete one; show passages, bring them back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import typer

from perdure.cli.run import LastAgent, Yes, agent_option, argument, command, for_work, option

if for_work(__name__):
    from rich.console import RenderableType
    from rich.text import Text

    from perdure.cli.chat.agent_choice import chat_command
    from perdure.cli.commands.memory import NO_STORE
    from perdure.cli.commands.search import passage_states
    from perdure.cli.views.json import fields, passage_shape
    from perdure.cli.views.view import View, fold, local_time, new_table, plural, visible
    from perdure.cli.work import confirm, deleted, get_agent, load_all, no_store, none_yet, open_store
    from perdure.core.ids import ArchiveId, PassageId
    from perdure.core.passages import Archive, Passage
    from perdure.library.checks import Page
    from perdure.library.passages import passage_filter
    from perdure.library.perdure import AsyncPerdure

ArchiveName = Annotated[str, argument("Name or id of the archive.", "ARCHIVE")]

NO_ARCHIVE = "There are no archives yet: an agent makes one when it puts something away; `perdure` starts the chat."

TEXT_CHARS = 200
SHORT_CHARS = 16
"""Of an id in a list: enough to name it."""


@command("archive list")
async def list_archives(view: View) -> None:
    """List the archives, and which agents have them."""
    async with open_store(view, empty=NO_ARCHIVE) as perdure:
        agents = await _agents_by_archive(perdure)
        infos = [archive.info for archive in await load_all(perdure.archives.list)]
    styles = {"name": "bold", "id": "dim"}
    table = new_table("name", "id", "passages", "agents", "changed", right=("passages",), styles=styles)
    for info in infos:
        names = visible(", ".join(agents[info.id])) or "-"
        table.add_row(visible(info.name), info.id, f"{info.passage_count:,}", names, local_time(info.updated_at))
    view.show([_shape(info, agents[info.id]) for info in infos], *([table] if infos else []))
    more = (
        "`perdure search TEXT --archive NAME` looks into one; `perdure archive export NAME FILE.jsonl` writes it out."
    )
    view.hint(more if infos else NO_ARCHIVE)


@command("archive show")
async def list_passages(
    view: View,
    archive: Annotated[
        str | None, argument("Name or id of the archive; by default all of the agent.", "[ARCHIVE]")
    ] = None,
    agent: Annotated[str | None, agent_option("Whose, by name or id; by default the agent used last.")] = None,
    state: Annotated[str | None, option("Only those that are `active`, `faded` or `archived`.", "STATE")] = None,
    limit: Annotated[int, option("How many.", min=1, max=10_000)] = 50,
) -> None:
    """List passages with their states, newest first."""
    if agent is not None and archive is not None:
        raise typer.BadParameter("its passages are listed by themselves: leave --agent out", param_hint="ARCHIVE")
    where, page = passage_filter(states=passage_states(state)), Page(limit, ascending=False)
    async with open_store(view, empty=no_store(NO_STORE)) as perdure:
        if archive is not None:
            passages = await (await perdure.archives.get(archive)).list_passages(page, where=where)
        else:
            passages = await (await get_agent(view, perdure, agent)).list_passages(page, where=where)
        view.show([passage_shape(one) for one in passages], *_table(passages))
        view.hint("`perdure archive restore ID` brings one back that has faded; `perdure fact tidy` lets them fade.")


@command("archive restore")
async def restore(
    view: View, passages: Annotated[list[str], argument("Ids of passages, or their beginnings.", "ID...")]
) -> None:
    """Bring passages back that have faded or are archived."""
    async with open_store(view, empty=none_yet("passage", passages[0])) as perdure:
        ids = [PassageId(await perdure.origins.find_id(start, "passage")) for start in passages]
        restored = [await perdure.archives.restore_passage(one) for one in ids]
        view.show([passage_shape(one) for one in restored], *_table(restored))
        view.hint("Searches and automatic recall find them again.")


@command("archive attach")
async def attach(view: View, archive: ArchiveName, agent: LastAgent = None) -> None:
    """Let an agent search an archive."""
    async with open_store(view, empty=none_yet("archive", archive)) as perdure:
        target, owner = await perdure.archives.get(archive), await get_agent(view, perdure, agent, change=True)
        await owner.archives.attach(target.id)
        view.show(_shape(target.info, (await _agents_by_archive(perdure))[target.id]))
        view.hint(f"{owner.name} finds what is in {target.name}: `{chat_command(owner)}`.")


@command("archive detach")
async def detach(view: View, archive: ArchiveName, agent: LastAgent = None) -> None:
    """Take an archive from an agent."""
    async with open_store(view, empty=none_yet("archive", archive)) as perdure:
        target, owner = await perdure.archives.get(archive), await get_agent(view, perdure, agent, change=True)
        await owner.archives.detach(target.id)
        view.show(_shape(target.info, (await _agents_by_archive(perdure))[target.id]))
        view.hint(f"{owner.name} has {target.name} no longer; the archive itself stays.")


@command("archive delete")
async def delete(view: View, archive: ArchiveName, yes: Yes = False) -> None:
    """Delete an archive with its passages, for good."""
    async with open_store(view, empty=none_yet("archive", archive)) as perdure:
        target = await perdure.archives.get(archive)
        agents, count = (await _agents_by_archive(perdure))[target.id], plural(target.info.passage_count, "passage")
        also = f", also for {visible(', '.join(agents))}" if agents else ""
        question = f"Archive {visible(target.name)!r} ({target.id}) with {count} will be gone for good{also}. Delete?"
        confirm(view, question, action="delete the archive", yes=yes)
        await perdure.archives.delete(target.id)
        view.show({"deleted": target.id})
        view.hint(deleted(f"archive {target.name!r} with {count}"))


async def _agents_by_archive(perdure: AsyncPerdure) -> defaultdict[ArchiveId, list[str]]:
    """The names of the agents of each archive."""
    names: defaultdict[ArchiveId, list[str]] = defaultdict(list)
    for agent in await load_all(perdure.agents):
        for archive in await agent.archives.list():
            names[archive.id].append(agent.name)
    return names


def _shape(info: Archive, agents: Sequence[str]) -> dict[str, object]:
    """An archive for programs."""
    shape = fields(info, "name", "id", "description")
    return shape | {"passages": info.passage_count, "agents": list(agents), "changed_at": info.updated_at.isoformat()}


def _table(passages: Sequence[Passage]) -> Sequence[RenderableType]:
    """A table of passages: their ids, which the other commands take, and their states."""
    if not passages:
        return [Text("No passages.")]
    table = new_table("id", "text", "when", "state", styles={"id": "dim", "text": "bold"})
    for one in passages:
        table.add_row(one.id[:SHORT_CHARS], visible(fold(one.text, TEXT_CHARS)), local_time(one.occurred_at), one.state)
    return [table]
