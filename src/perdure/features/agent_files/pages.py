"""Agent files on pages: an agent is exported and copied on the page of its settings, and imported at home."""

from __future__ import annotations

import asyncio
import contextlib
import re

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import AlreadyExists, InvalidInput, NotFound, PerdureError
from perdure.core.ids import AgentId
from perdure.core.text.reprs import plural
from perdure.features.agent_files.exporting import export_text
from perdure.features.agent_files.importing import Import, ImportOptions
from perdure.features.agent_files.reading import read_agent_file
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.errors import error_answer
from perdure.server.wire.http import library_of, wants_page
from perdure.ui.render import HEADERS, Data, Notice, Pages, Section, agent_of, error_page, field_of, form_of

NAME_CHARS = 60

pages = Pages()


async def download(request: Request) -> Response:
    """The agent as a file, which `perdure agent import` and Letta's server read; with `messages=no` without them."""
    library = library_of(request)
    try:
        agent = await library.agent(agent_of(request, library).id)
        text = await export_text(library, agent.id, with_messages=request.query_params.get("messages") != "no")
    except PerdureError as error:
        return error_page(error, request) if wants_page(request) else error_answer(error)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", agent.name)[:NAME_CHARS].strip("-") or "agent"
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{name}.af"'}
    return Response(text, media_type="application/json", headers=headers)


pages.add("/agents/{agent_id}/settings/export", download)


async def load(request: Request, library: AsyncPerdure) -> Data:
    """Nothing: the section has only forms."""
    return {}


async def copy_agent(request: Request, library: AsyncPerdure) -> Notice:
    """Make a copy of the agent under another name, with or without its messages, and open it."""
    own, form = agent_of(request, library), await form_of(request)
    name, with_messages = field_of(form, "name").strip(), form.get("messages") == "yes"
    with contextlib.suppress(NotFound):
        await library.agent(name)
        raise AlreadyExists("agent", name, helps="choose another name")
    text = await export_text(library, own.id, with_messages=with_messages)
    (made, *_), warnings = await _make(library, text.encode(), ImportOptions(name=name))
    if not warnings:
        return Notice("", location=f"/agents/{made}/settings")
    return Notice(f"{name} was made. {warnings}", link=(f"/agents/{made}/settings", f"Open {name}"))


async def import_agents(request: Request, library: AsyncPerdure) -> Notice:
    """Make the agents of an agent file."""
    async with request.form(max_files=1) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            raise InvalidInput("file: no file was chosen")
        content = await file.read()
    options = ImportOptions(without_messages=form.get("messages") != "yes")
    made, warnings = await _make(library, content, options)
    text = f"Imported {plural(len(made), 'agent')}. {warnings}".strip()
    return Notice(text, link=(f"/agents/{made[0]}", "Open the chat") if made else None)


async def _make(library: AsyncPerdure, content: bytes, options: ImportOptions) -> tuple[list[AgentId], str]:
    """Create a file's agents; return their ids, and a sentence for each difference. Raises: PerdureError."""
    work = Import(library, await asyncio.to_thread(read_agent_file, content), options)
    made = list(await work.run())
    return made, " ".join(f"{warning[0].upper()}{warning[1:].rstrip('.')}." for warning in work.warnings)


OF_AGENT = Section(
    name="agent_file", load=load, actions={"/agents/{agent_id}/settings/copy": copy_agent}, is_shown_empty=True
)
AT_HOME = Section(name="agent_import", load=load, actions={"/agents/import": import_agents}, is_shown_empty=True)
