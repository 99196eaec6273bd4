"""On the page of connections: what gives other programs this memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.features.connect.files import file_texts
from perdure.features.connect.programs import data_variables, plan_entries, programs
from perdure.library.perdure import AsyncPerdure
from perdure.server.serving.guards import is_of_this_machine
from perdure.ui.render import Data, Section


async def load(request: Request, library: AsyncPerdure) -> list[Data]:
    """Return for each program the command that connects it and what that writes, or the steps to do by hand."""
    address = str(request.base_url).rstrip("/")
    environment: Mapping[str, str] = {}
    if is_of_this_machine(request.scope):  # whose programs find this server's memory only where it is
        with suppress(InvalidInput):  # an address with a password stays off the page
            environment = data_variables(shared=True)
    shown: list[Data] = []
    for program in programs().values():
        texts = {"": program.by_hand.strip().format(address=address)}
        if not program.by_hand:
            entries = plan_entries(program, folder=None, portable=environment, address=address)
            texts = {str(path): text for path, text in file_texts(entries).items()}
        parts = [{"place": place, "text": text} for place, text in texts.items()]
        command = "" if program.by_hand else f"perdure connect {program.name}"
        shown.append({"name": program.title, "next": program.next, "command": command, "texts": parts})
    return shown


SECTION = Section(name="connect", load=load, actions={})
