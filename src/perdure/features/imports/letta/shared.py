"""What agents of a Letta server share: tools awaiting review, MCP servers without secrets, and folders."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.secrets import hide_secret, may_hold_secret
from perdure.domain.tools.units import build_tool
from perdure.features.agent_files.folders import create_folder, list_files
from perdure.features.agent_files.importing import find_tool
from perdure.features.agent_files.reading import FileFolder
from perdure.features.files.converters.convert import name_text
from perdure.features.files.folder_service import AsyncFolder
from perdure.features.imports.letta.client import Object, path_of
from perdure.features.imports.letta.context import LettaContext
from perdure.features.imports.sources.plain import list_in, object_in, text_in
from perdure.library.tools.tools import UNSAVED
from perdure.server.wire.tools import ToolIn

UNREVIEWED = "unreviewed"
"""The tag of a tool whose code no person has read here."""
NO_SOURCE = "tools without source code"
OTHER_SOURCE = "tools of which another one with the name is here, and stays as it is"
OF_MCP = "tools of MCP servers: give them to agents when their server is approved here"
NO_TEXT = "files whose text the server does not give"
SECRET_ADDRESS = "MCP servers whose address or arguments may hold a secret, to be added by hand"

FILES_AT_ONCE = 20


async def import_tool(context: LettaContext, found: Object) -> None:
    """Create a tool from its source, to be reviewed before it runs; for a built-in tool find this program's own.
    Raises: InvalidInput, ValidationError: invalid source."""
    name, kind, report = text_in(found.get("name")), text_in(found.get("tool_type")) or "custom", context.report
    if not name or name in context.tools:
        return
    context.tools[name] = "missing"
    here = await find_tool(context.library, name)
    is_custom = here is not None and here.tool.spec.tool_type == "custom"
    if kind == "external_mcp":
        report.leave_out(OF_MCP)
    elif kind != "custom":
        if here is None or is_custom:
            report.leave_out(f"tools that this program lacks: {name!r:.60}")
        else:
            context.tools[name] = "here"
    elif not isinstance(found.get("source_code"), str) or not found["source_code"].strip():
        report.leave_out(f"{NO_SOURCE}: {name!r:.60}")
    elif here is not None:
        waits = is_custom and UNREVIEWED in here.tool.tags
        if not is_custom or (not waits and here.code is not None and here.code.source != found["source_code"]):
            report.leave_out(f"{OTHER_SOURCE}: {name!r:.60}")
        context.tools[name] = "review" if waits else "here"
        context.count("tools", already=1)
    else:
        new = ToolIn.model_validate({**found, "tags": [*list_in(found.get("tags")), UNREVIEWED]})
        new_tool, tools = new.new(), context.library.tools
        await asyncio.to_thread(build_tool, new_tool, UNSAVED)  # raises if it is none
        if not context.dry:
            await context.make("tool", str(found.get("id")), partial(tools.add, new_tool, fields=new.set_fields))
        context.tools[name] = "review"
        context.count("tools", new=1)
    if context.tools[name] == "review":
        report.to_review.append(name)


async def import_mcp_server(context: LettaContext, found: Object) -> None:
    """Register a server of MCP without its secrets; nothing is started or asked. Raises: InvalidInput."""
    if not hasattr(context.library, "mcp"):
        raise InvalidInput("this program lacks its feature `mcp`")
    name, mcp = text_in(found.get("server_name")) or text_in(found.get("name")), context.library.mcp
    here = any(one.name == name for one in await mcp.list())
    url, command = text_in(found.get("server_url")), text_in(found.get("command"))
    args = [*map(str, list_in(found.get("args")))]
    owner = f"MCP server {name!r}"
    context.report.note_secrets(owner, [*object_in(found.get("env")), *object_in(found.get("custom_headers"))])
    if found.get("auth_token") or found.get("auth_header"):  # a Perdure server hides the token
        context.report.note_secrets(owner, [text_in(found.get("auth_header")) or "Authorization"])
    if bool(url) == bool(command):
        raise InvalidInput("it has neither an address nor a command")
    if hide_secret(url)[1] or "@" in url or any(map(may_hold_secret, args)):
        context.report.leave_out(f"{SECRET_ADDRESS}: {name!r:.60}")
        return
    if not here and not context.dry:
        options: dict[str, Any] = {"transport": found.get("mcp_server_type") or None}
        options |= {"command": command, "args": args} if command else {"url": url}
        await context.make("mcp_server", str(found.get("id")), partial(mcp.add, name, check=False, **options))
    context.count("MCP servers", new=not here, already=here)


async def import_folder(context: LettaContext, found: Object) -> None:
    """Create a folder if it does not exist here, and add the files whose names it lacks. Raises: LettaRefused."""
    fields: dict[str, Any] = {
        name: text_in(found.get(name)) or None for name in ("name", "description", "instructions")
    }
    fields |= {"metadata": dict(object_in(found.get("metadata")))}
    create = partial(create_folder, context.library, FileFolder(fields, {}))
    folder = await context.take("folder", found["id"], create, context.library.folders.get)
    context.folders[found["id"]] = "" if folder is None else folder.id
    names = set() if folder is None else {file.file.name async for file in list_files(folder)}
    step, params = partial(_import_text, context, folder, names), {"limit": FILES_AT_ONCE, "include_content": "true"}
    await context.each(path_of("folders", found["id"], "files"), "files", step, params)


async def _import_text(context: LettaContext, folder: AsyncFolder | None, names: set[str], found: Object) -> None:
    """Put the text of a file into its folder, unless a file has its name there. Raises: InvalidInput."""
    name = text_in(found.get("file_name")) or text_in(found.get("original_file_name")) or found["id"]
    text, own = found.get("content"), name_text(name)
    if not isinstance(text, str) or not text:
        context.report.leave_out(f"{NO_TEXT}: {name!r:.80}")
        return
    if (is_new := own not in names) and folder is not None and not context.dry:
        await folder.upload(text.encode("utf-8", "replace"), name=own, original_name=name, if_exists="skip")
    names.add(own)
    context.count("files", new=is_new, already=not is_new)
