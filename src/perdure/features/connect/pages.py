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
    shown: list[Data] = []
    for one in programs().values():
        texts = {"": one.by_hand.strip().format(address=address)}
        if not one.by_hand:
            entries = plan_entries(one, folder=None, portable=True, address=address)
            texts = {str(path): text for path, text in file_texts(entries).items()}
        parts = [{"place": place, "text": text} for place, text in texts.items()]
        command = "" if one.by_hand else f"perdure connect {one.name}"
        shown.append({"name": one.title, "next": one.next, "command": command, "texts": parts})
    return shown


SECTION = Section(name="connect", load=load, actions={})
