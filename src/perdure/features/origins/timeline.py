"""On the page of an agent's memory: a time line of every write, and undoing a correction."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from perdure.core.blocks import Block
from perdure.core.errors import InvalidInput
from perdure.core.passages import CAPTURED
from perdure.features.origins.origin_values import MemoryOrigin
from perdure.library.agent import AsyncAgentById
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.home import UNDO, page_author, version_shape
from perdure.ui.render import Data, Notice, Section, agent_of, field_of, form_of, is_number

TIMELINE_MAX, PASSAGES_MAX, VERSIONS_MAX, REASON_CHARS = 100, 50, 50, 240
PLOTTED_MIN, PLOTTED_MAX = 3, 8
"""As many lines as there are colours."""
NO_REASON: Data = {"id": None, "tool": None, "reason": None}
CALLERS = ("agent", "system")
"""Authors that write in answer to a message."""


async def load(request: Request, library: AsyncPerdure) -> Data:
    """Return the newest writes and the growth of the blocks if the query has `timeline`, else None for both."""
    if not request.query_params.get("timeline"):
        return {"writes": None, "growth": None}
    agent = agent_of(request, library)
    writes = await _writes(agent, await agent.blocks.list())
    return {"writes": writes, "growth": _growth_of_all(writes)}


async def _writes(agent: AsyncAgentById, blocks: Sequence[Block]) -> list[Data]:
    """The newest writes of blocks and archive, newest first, each with who wrote it and in which run."""
    writes = list[Data]()
    for block in blocks:
        reasons = await _reasons(agent, block.id)
        for version in await agent.blocks.history(block.label, limit=VERSIONS_MAX):
            key = version.version
            writes.append(version_shape(version) | {"kind": "block", "name": block.label} | reasons.get(key, NO_REASON))
    for passage in await agent.list_passages(Page(PASSAGES_MAX, ascending=False)):
        source = passage.source
        author = "system" if source.get("type") == CAPTURED else "agent" if source.get("run_id") else "user"
        writes.append(
            {
                "kind": "archive",
                "name": passage.id,
                "text": passage.text,
                "author": "file" if source.get("file_id") else author,
                **{"agent_id": source.get("agent_id"), "agent_name": "", "why": ""},
                "run_id": source.get("run_id"),
                "message_id": source.get("message_id"),
                "at": passage.created_at,
            }
        )
    newest = sorted(writes, key=lambda write: write["at"], reverse=True)[:TIMELINE_MAX]
    for write in newest:
        if write["kind"] == "archive":
            found_reasons = await _reasons(agent, write["name"]) if write["author"] in CALLERS else {}
            write |= found_reasons.get(None, NO_REASON)
    return newest


async def _reasons(agent: AsyncAgentById, memory_id: str) -> dict[int | None, Data]:
    """Map the numbers of a block's versions (None: of a passage) to the tool that wrote it and the message before."""
    origin = await agent.why(memory_id)
    if not isinstance(origin, MemoryOrigin):
        return {}
    return {
        write.version: {"id": memory_id, "tool": write.tool, "reason": messages[-1].text[:REASON_CHARS]}
        for write in origin.writes
        if (messages := write.messages or origin.stands_for)
    }


def _growth_of_all(writes: Sequence[Data]) -> Data | None:
    """The length of each block at the time of each write, oldest first; None: too few writes for a plot."""
    ordered = [write for write in reversed(writes) if write["kind"] == "block"]
    if len(ordered) < PLOTTED_MIN:
        return None
    series = []
    for name in dict.fromkeys(write["name"] for write in ordered):
        size, sizes = None, list[int | None]()
        for write in ordered:
            size = len(write["value"]) if write["name"] == name else size
            sizes.append(size)
        series.append({"label": name, "values": sizes, "unit": ""})
    return {"x": [write["at"].timestamp() for write in ordered], "series": series[:PLOTTED_MAX]}


async def undo(request: Request, library: AsyncPerdure) -> Notice:
    """Undo a correction of memory."""
    number = field_of(await form_of(request), "number")
    if not is_number(number):
        raise InvalidInput(f"number is {number!r:.40}: write the number of a correction")
    result = await agent_of(request, library).undo(int(number), author=page_author())
    if result.conflicts:
        return Notice(f"Not everything could be undone: {'; '.join(result.conflicts)}", is_error=True)
    return Notice("Undone: it is as it was before.")


SECTION = Section(name="writes", load=load, actions={UNDO: undo}, is_of_page=True)
