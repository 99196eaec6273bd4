"""Search everything: agents, blocks, texts of archives and messages, each with a link to where it stands."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from perdure.core.agents import AgentFilter
from perdure.core.blocks import Block, BlockFilter
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.passages import PassageFilter
from perdure.core.text.reprs import attributes
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.search.ranking.hits import PassageHit
from perdure.ui.pages.home import agent_names, agent_shape
from perdure.ui.pages.memory import block_shape, passage_shape
from perdure.ui.render import Data, Pages

FOUND_MAX, TEXT_CHARS = 10, 400

pages = Pages()


@pages.get("/search", "search.html")
async def search(request: Request, library: AsyncPerdure) -> Data:
    """The best matches of each kind; without a text, none."""
    text = request.query_params.get("q", "").strip()
    found: Data = {"title": "Search", "search": text, "agents": [], "blocks": [], "passages": [], "messages": []}
    if not text:
        return found
    first = Page(FOUND_MAX, ascending=False)
    agents = await library.all_agents.page(AgentFilter(text=text), first, "used")
    blocks = {
        block.id: block
        for where in (BlockFilter(label_text=text), BlockFilter(value_text=text))
        for block in await library.blocks.page(where, first)
    }
    hits = await library.search.search_passages(text, PassageFilter(), limit=FOUND_MAX)
    messages = await library.search.search_messages(text, limit=FOUND_MAX)
    names = await agent_names(library, [hit.message.agent_id for hit in messages.hits])
    return found | {
        "agents": [agent_shape(agent) for agent in agents],
        "blocks": await _blocks(library, list(blocks.values())[:FOUND_MAX]),
        "passages": await _passages(library, hits),
        "messages": [
            {
                **attributes(hit.message, "id", "agent_id", "role", at="occurred_at"),
                "agent": names[hit.message.agent_id],
                "conversation_id": messages.conversations[hit.message.agent_id, hit.message.conversation_seq],
                "before": hit.message.seq + 1,
                "text": hit.message.text[:TEXT_CHARS],
                "score": hit.score,
            }
            for hit in messages.hits
        ],
    }


async def _blocks(library: AsyncPerdure, blocks: Sequence[Block]) -> list[Data]:
    """What the page shows of blocks: each with the beginning of its value and an agent that has it."""
    shapes = []
    for block in blocks:
        owners = await library.all_agents.page(AgentFilter(block_id=block.id), Page(1, ascending=True), "created")
        owner = {"agent_id": owners[0].id, "agent": owners[0].name} if owners else {"agent_id": None, "agent": None}
        shapes.append(block_shape(block) | owner | {"value": block.value[:TEXT_CHARS]})
    return shapes


async def _passages(library: AsyncPerdure, hits: Sequence[PassageHit]) -> list[Data]:
    """Return passages for the page, each with its beginning, its archive's name and an agent that has the archive."""
    owners: dict[ArchiveId, tuple[str, AgentId | None]] = {}
    for archive_id in dict.fromkeys(hit.passage.archive_id for hit in hits):
        archive = (await library.archives.get(archive_id)).info
        agents = await library.archive_of(archive_id).agents(limit=1)
        owners[archive_id] = archive.name, agents[0] if agents else None
    return [
        passage_shape(hit.passage)
        | {
            "text": hit.passage.text[:TEXT_CHARS],
            "score": hit.score,
            "archive": owners[hit.passage.archive_id][0],
            "agent_id": owners[hit.passage.archive_id][1],
        }
        for hit in hits
    ]
