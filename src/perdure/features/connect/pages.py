"""On the page of connections: what gives other programs this memory."""

from __future__ import annotations

from starlette.requests import Request

from perdure.features.connect.entries import plan_entries
from perdure.features.connect.files import file_texts
from perdure.features.connect.programs import programs
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Section


async def load(request: Request, library: AsyncPerdure) -> list[Data]:
    """Each program with its command, and what that writes into each file; or with what a person does."""
    address = str(request.base_url).rstrip("/")
    return [
        {
            "name": program.title,
            "next": program.next,
            "command": "" if program.by_hand else f"perdure connect {program.name}",
            "texts": [{"place": "", "text": program.by_hand.strip().format(address=address)}]
            if program.by_hand
            else [
                {"place": str(path), "text": text}
                for path, text in file_texts(plan_entries(program, folder=None, portable=True, address=address)).items()
            ],
        }
        for program in programs().values()
    ]


SECTION = Section(name="connect", load=load, actions={})
