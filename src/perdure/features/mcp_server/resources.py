"""Blocks, notes and the profile as resources: `memory://project/blocks/human`."""

from __future__ import annotations

from urllib.parse import quote, unquote

from mcp_types import Resource

from perdure.core.errors import NotFound
from perdure.core.ids import PassageId
from perdure.features.mcp_server.memory import MemoryTools

SCHEME = "memory://"
NOTES_LISTED = 100


async def list_resources(memory: MemoryTools) -> list[Resource]:
    """Return each block, note and profile."""
    rows = list[tuple[str, str, str]]()
    for level, agent in await memory.readers():
        for block in await agent.blocks.list():
            path = f"{level}/blocks/{quote(block.label, safe='')}"
            rows.append((path, f"{level} block {block.label}", block.description or ""))
        rows.append((f"{level}/profile", f"{level} profile", "What is known about the user."))
        for note in await agent.notes.list(limit=NOTES_LISTED):
            rows.append((f"{level}/notes/{note.id}", note.title, f"{level} note: {note.kind}"))
    return [
        Resource(uri=SCHEME + path, name=name, description=about, mime_type="text/markdown")
        for path, name, about in rows
    ]


async def read_resource(memory: MemoryTools, uri: str) -> str:
    """Return the text of a resource. Raises: NotFound."""
    level, _, path = uri.removeprefix(SCHEME).partition("/")
    kind, _, name = path.partition("/")
    for one, agent in await memory.readers():
        if one != level or not uri.startswith(SCHEME):
            continue
        match kind:
            case "blocks":
                return (await agent.blocks.get(unquote(name))).value
            case "notes":
                return (await agent.notes.get(PassageId(name))).text
            case "profile":
                profile = await agent.profile()
                return "\n".join(f"- {slot}: {', '.join(values)}" for slot, values in profile.slots.items())
    raise NotFound("resource", uri, hint="resources/list names those that there are")
