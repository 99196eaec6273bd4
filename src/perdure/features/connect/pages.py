"""On the page of connections: what gives other programs this memory."""

from __future__ import annotations

from starlette.requests import Request

from perdure.features.connect.programs import plan_entries, programs
from perdure.features.connect.snippets import entry_text
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.connections import CLIENTS
from perdure.ui.render import Data, Section


async def load(request: Request, library: AsyncPerdure) -> list[Data]:
    """Each program with its command, and what that writes; or with what a person does."""
    address = str(request.base_url).rstrip("/")
    return [
        {
            "name": program.title,
            "command": "" if program.by_hand else f"perdure connect {program.name}",
            "texts": [{"place": "", "text": program.by_hand.strip().format(address=address)}]
            if program.by_hand
            else [
                {"place": str(entry.path), "text": entry_text(entry)}
                for entry in plan_entries(program, folder=None, portable=True)
            ],
        }
        for program in programs().values()
        if not (program.by_hand and program.title in CLIENTS)  # those are on the page already
    ]


SECTION = Section(name="connect", load=load, actions={})
