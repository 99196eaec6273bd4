"""`perdure archives`: list archives with their agents; attach, detach or delete one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure.cli.confirm import confirm
from perdure.cli.open_store import Output, with_store
from perdure.cli.pages import load_agents, load_archives
from perdure.cli.views.fold import local_time, plural, visible
from perdure.core.errors import NotFound
from perdure.core.ids import ArchiveId
from perdure.library.perdure import AsyncPerdure

if TYPE_CHECKING:
    from rich.table import Table

NO_ARCHIVE = "There are no archives yet: an agent makes one when it puts something away; `perdure` starts the chat."


@dataclass(frozen=True, slots=True)
class _Row:
    id: ArchiveId
    name: str
    description: str | None
    passages: int
    agents: list[str]
    changed_at: datetime

    def shape(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "id": self.id,
            "description": self.description,
            "passages": self.passages,
            "agents": self.agents,
            "changed_at": self.changed_at.isoformat(),
        }


async def archives(
    *, attach: tuple[str, str] | None, detach: tuple[str, str] | None, delete: str | None, yes: bool, as_json: bool
) -> int:
    """Change an archive if one is named, print the archives, and return the exit code. No store is made.

    Args:
        attach, detach: (archive, agent), each by name or id.
    """
    output = Output(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        if attach is not None:
            archive = await perdure.archives.get(attach[0])
            await (await perdure.agent(attach[1])).archives.attach(archive.id)
        if detach is not None:
            archive = await perdure.archives.get(detach[0])
            await (await perdure.agent(detach[1])).archives.detach(archive.id)
        if delete is not None and not await _delete(perdure, delete, yes=yes):
            output.view.hint("Nothing was deleted.")
            return 1
        rows = await _rows(perdure)
        if as_json:
            output.json([row.shape() for row in rows])
        elif not rows:
            output.view.hint(NO_ARCHIVE)
        else:
            output.terminal.show(_table(rows))
            output.view.hint(
                "`perdure search TEXT --archive NAME` looks into one; `perdure export NAME FILE.jsonl` writes it out."
            )
        return 0

    names = [delete] if delete is not None else [*(attach or detach or ())]
    if names:
        return await with_store(output, work, empty=NotFound("archive", names[0], hint="there is none yet"))
    return await with_store(output, work, empty=NO_ARCHIVE)


async def _delete(perdure: AsyncPerdure, name: str, *, yes: bool) -> bool:
    """Delete an archive after a question; False: the person says no."""
    archive = await perdure.archives.get(name)
    users = [agent for row in await _rows(perdure) if row.id == archive.id for agent in row.agents]
    also = f", also for {visible(', '.join(users))}" if users else ""
    question = (
        f"Archive {visible(archive.name)!r} ({archive.id}) with {plural(archive.info.passage_count, 'passage')} will be"
        f" gone for good{also}. Delete?"
    )
    if not confirm(question, action="delete the archive", yes=yes):
        return False
    await perdure.archives.delete(archive.id)
    return True


async def _rows(perdure: AsyncPerdure) -> list[_Row]:
    """Every archive with the names of its agents, oldest first."""
    users: dict[ArchiveId, list[str]] = {}
    for agent in await load_agents(perdure):
        for archive in await agent.archives.list():
            users.setdefault(archive.id, []).append(agent.name)
    infos = [archive.info for archive in await load_archives(perdure)]
    return [
        _Row(info.id, info.name, info.description, info.passage_count, users.get(info.id, []), info.updated_at)
        for info in infos
    ]


def _table(rows: list[_Row]) -> Table:
    from rich.text import Text

    from perdure.cli.views.table import new_table

    table = new_table("name", "id", "passages", "agents", "changed", right=("passages",))
    for row in rows:
        table.add_row(
            Text(visible(row.name), style="bold"),
            Text(row.id, style="dim"),
            Text(f"{row.passages:,}"),
            Text(visible(", ".join(row.agents)) or "-"),
            Text(local_time(row.changed_at)),
        )
    return table
