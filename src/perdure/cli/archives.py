"""`perdure archives`: the archives of the store, and who has them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.cli.fold import local_time, visible
from perdure.cli.opened import Shown, with_store
from perdure.core.ids import AgentId, ArchiveId
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


async def archives(*, as_json: bool) -> int:
    """Print the archives of the data folder. A folder that is not there is left so."""
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
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

    return await with_store(shown, work, empty=NOTHING_YET)


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
