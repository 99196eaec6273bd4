"""Blocks, notes and the profile as resources: `memory://project/blocks/human`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote, unquote

from perdure.core.errors import NotFound
from perdure.core.ids import PassageId

if TYPE_CHECKING:
    from perdure.features.mcp_server.memory import MemoryTools

SCHEME = "memory://"
NOTES_LISTED = 100


class MemoryResource(TypedDict):
    """What a list says of a resource."""

    uri: str
    name: str
    description: str


async def list_resources(memory: MemoryTools) -> Sequence[MemoryResource]:
    """Return each block, note and profile."""
    found = list[MemoryResource]()
    for level, agent in await memory.readers():
        base = f"{SCHEME}{level}"
        found += [
            {
                "uri": f"{base}/blocks/{quote(block.label, safe='')}",
                "name": f"{level} block {block.label}",
                "description": block.description or "",
            }
            for block in await agent.blocks.list()
        ]
        found.append(
            {"uri": f"{base}/profile", "name": f"{level} profile", "description": "What is known about the user."}
        )
        found += [
            {"uri": f"{base}/notes/{note.id}", "name": note.title, "description": f"{level} note: {note.kind}"}
            for note in await agent.notes.list(limit=NOTES_LISTED)
        ]
    return found


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
