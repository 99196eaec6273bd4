"""`perdure archives`: the archives of the store and who has them; given to agents, taken from them, deleted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.cli.confirm import agreed
from perdure.cli.open_store import Shown, with_store
from perdure.cli.views.fold import local_time, visible
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ArchiveId
from perdure.library.agent import AsyncAgent
from perdure.library.archives import AsyncArchive
from perdure.library.perdure import AsyncPerdure

__all__ = ["archives"]

PAGE = 100
NOTHING_YET = "There are no archives yet: an agent makes one when it puts something away; `perdure` starts the chat."


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
    """Print the archives of the data folder, once what is asked for has been done to one of them; the exit code. A
    folder that is not there is left so.

    Args:
        attach, detach: an archive and an agent.
    """
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        if attach is not None:
            archive, agent = await _both(perdure, attach)
            await agent.archives.attach(archive.id)
        if detach is not None:
            archive, agent = await _both(perdure, detach)
            await agent.archives.detach(archive.id)
        if delete is not None and not await _deleted(perdure, delete, yes=yes):
            shown.view.hint("Nothing was deleted.")
            return 1
        rows = await _rows(perdure)
        if as_json:
            shown.json([row.shape() for row in rows])
        elif not rows:
            shown.view.hint(NOTHING_YET)
        else:
            shown.terminal.show(_table(rows))
            shown.view.hint(
                "`perdure search TEXT --archive NAME` looks into one; `perdure export NAME FILE.jsonl` writes it out."
            )
        return 0

    asked = attach or detach or delete
    if asked is None:
        return await with_store(shown, work, empty=NOTHING_YET)
    name = asked if isinstance(asked, str) else asked[0]
    return await with_store(shown, work, empty=NotFound("archive", name, hint="there is none yet"))


async def _both(perdure: AsyncPerdure, names: tuple[str, str]) -> tuple[AsyncArchive, AsyncAgent]:
    """An archive and an agent, by their names or ids."""
    return await perdure.archives.get(names[0]), await perdure.agent(names[1])


async def _deleted(perdure: AsyncPerdure, name: str, *, yes: bool) -> bool:
    """Whether a person wanted it so."""
    archive = await perdure.archives.get(name)
    count = archive.info.passage_count
    having = [agent for row in await _rows(perdure) if row.id == archive.id for agent in row.agents]
    also = f", also for {visible(', '.join(having))}" if having else ""
    told = (
        f"Archive {visible(archive.name)!r} ({archive.id}) with {count:,} passage{'' if count == 1 else 's'} will be"
        f" gone for good{also}. Delete?"
    )
    if not yes and not agreed(told, whether="the archive shall be deleted"):
        return False
    await perdure.archives.delete(archive.id)
    return True


async def _rows(perdure: AsyncPerdure) -> list[_Row]:
    """Every archive, oldest first."""
    having: dict[ArchiveId, list[str]] = {}
    last: AgentId | None = None
    while agents := await perdure.agents(limit=PAGE, after=last):
        for agent in agents:
            for archive in await agent.archives.list():
                having.setdefault(archive.id, []).append(agent.name)
        last = agents[-1].id
    rows: list[_Row] = []
    after: ArchiveId | None = None
    while page := await perdure.archives.list(limit=PAGE, after=after):
        for archive in page:
            info = archive.info
            names = having.get(info.id, [])
            rows.append(_Row(info.id, info.name, info.description, info.passage_count, names, info.updated_at))
        after = page[-1].id
    return rows


def _table(rows: list[_Row]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("name", "id", "passages", "agents", "changed"):
        table.add_column(name, overflow="fold", justify="right" if name == "passages" else "left")
    for row in rows:
        table.add_row(
            Text(visible(row.name), style="bold"),
            Text(row.id, style="dim"),
            Text(f"{row.passages:,}"),
            Text(visible(", ".join(row.agents)) or "-"),
            Text(local_time(row.changed_at)),
        )
    return table
