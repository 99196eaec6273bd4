"""`perdure archives`: list archives with their agents; attach, detach or delete one."""

from __future__ import annotations

from collections import defaultdict

from perdure.cli.views.fold import local_time, plural, visible
from perdure.cli.views.json import fields
from perdure.cli.views.table import new_table
from perdure.cli.views.view import View
from perdure.cli.work import confirm, deleted, load_all, open_store
from perdure.core.errors import NotFound
from perdure.core.ids import ArchiveId
from perdure.library.perdure import AsyncPerdure

NO_ARCHIVE = "There are no archives yet: an agent makes one when it puts something away; `perdure` starts the chat."


async def archives(
    view: View, *, attach: tuple[str, str] | None, detach: tuple[str, str] | None, delete: str | None, yes: bool
) -> None:
    """Change an archive if one is named, and print the archives. No store is made.

    Args:
        attach, detach: (archive, agent), each by name or id.
    """
    name = delete or (attach or detach or ("",))[0]
    empty = NotFound("archive", name, hint="there is none yet") if name else NO_ARCHIVE
    async with open_store(view, empty=empty) as perdure:
        if attach is not None:
            archive = await perdure.archives.get(attach[0])
            await (await perdure.agent(attach[1])).archives.attach(archive.id)
        if detach is not None:
            archive = await perdure.archives.get(detach[0])
            await (await perdure.agent(detach[1])).archives.detach(archive.id)
        if delete is not None:
            await _delete(view, perdure, delete, yes=yes)
        await _show(view, perdure)


async def _delete(view: View, perdure: AsyncPerdure, name: str, *, yes: bool) -> None:
    """Delete an archive after a question."""
    archive = await perdure.archives.get(name)
    agents = (await _agents_by_archive(perdure))[archive.id]
    also = f", also for {visible(', '.join(agents))}" if agents else ""
    question = (
        f"Archive {visible(archive.name)!r} ({archive.id}) with {plural(archive.info.passage_count, 'passage')} will be"
        f" gone for good{also}. Delete?"
    )
    confirm(view, question, action="delete the archive", yes=yes)
    await perdure.archives.delete(archive.id)
    view.hint(deleted(f"archive {archive.name!r} with {plural(archive.info.passage_count, 'passage')}"))


async def _agents_by_archive(perdure: AsyncPerdure) -> defaultdict[ArchiveId, list[str]]:
    """The names of the agents of each archive."""
    names: defaultdict[ArchiveId, list[str]] = defaultdict(list)
    for agent in await load_all(perdure.agents):
        for archive in await agent.archives.list():
            names[archive.id].append(agent.name)
    return names


async def _show(view: View, perdure: AsyncPerdure) -> None:
    """Show every archive with the names of its agents, oldest first."""
    agents = await _agents_by_archive(perdure)
    infos = [archive.info for archive in await load_all(perdure.archives.list)]
    styles = {"name": "bold", "id": "dim"}
    table = new_table("name", "id", "passages", "agents", "changed", right=("passages",), styles=styles)
    for info in infos:
        names = visible(", ".join(agents[info.id])) or "-"
        table.add_row(visible(info.name), info.id, f"{info.passage_count:,}", names, local_time(info.updated_at))
    shapes = [
        fields(info, "name", "id", "description")
        | {"passages": info.passage_count, "agents": agents[info.id], "changed_at": info.updated_at.isoformat()}
        for info in infos
    ]
    view.show(shapes, *([table] if infos else []))
    view.hint(
        "`perdure search TEXT --archive NAME` looks into one; `perdure export NAME FILE.jsonl` writes it out."
        if infos
        else NO_ARCHIVE
    )
