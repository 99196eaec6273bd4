"""Memory: the blocks of an agent with their versions, and its archive."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from perdure.core.blocks import Author, Block, BlockVersion
from perdure.core.ids import PassageId
from perdure.core.passages import Passage, PassageFilter
from perdure.domain.archives.passages import NewPassage
from perdure.library.paging import Page
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.home import agent_shape
from perdure.ui.render import Data, Notice, Pages, after_of, agent_id_of, field_of, form_of

PASSAGES_MAX, VERSIONS_MAX, PLOTTED_MIN = 50, 50, 3
AUTHOR = Author(kind="user", id="dashboard")

pages = Pages()


@pages.get("/agents/{agent_id}/memory", "memory.html")
async def memory(request: Request, library: AsyncPerdure) -> Data:
    """The blocks; with `block` the versions of one; and the archive, newest first or as a search finds it."""
    services, agent_id, query = library.services, agent_id_of(request), request.query_params
    agent = await services.agents.resolve(agent_id)
    blocks = await services.blocks.list_of_agent(agent_id)
    label = query.get("block")
    versions = [] if not label else await services.blocks.list_versions(agent_id, label, limit=VERSIONS_MAX)
    search = query.get("q", "").strip()
    after = None
    if search:
        hits = await services.search.passages(search, PassageFilter(), agent_id=agent_id, limit=PASSAGES_MAX)
        passages = [passage_shape(hit.passage) | {"score": hit.score} for hit in hits]
    else:
        page = Page(PASSAGES_MAX, ascending=False, after=query.get("after"))
        found = await services.passages.list_of_agent(agent_id, page)
        passages, after = [passage_shape(one) for one in found], after_of(found, PASSAGES_MAX)
    return {
        "title": f"{agent.name} · Memory",
        "agent": agent_shape(agent),
        "tab": "memory",
        "blocks": [block_shape(block) for block in blocks],
        "label": label,
        "versions": [version_shape(version) for version in versions],
        "plot": _growth(versions),
        "passages": passages,
        "search": search,
        "after": after,
    }


def _growth(versions: Sequence[BlockVersion]) -> Data | None:
    """The length of a block over time; None: it has too few versions for a plot."""
    if len(versions) < PLOTTED_MIN:
        return None
    ordered = versions[::-1]
    sizes = {"label": "characters", "values": [len(version.value) for version in ordered], "unit": ""}
    return {"x": [version.created_at.timestamp() for version in ordered], "series": [sizes]}


def block_shape(block: Block) -> Data:
    """A block as the page shows it."""
    return {
        "id": block.id,
        "label": block.label,
        "value": block.value,
        "description": block.description,
        "chars": len(block.value),
        "limit": block.limit_chars,
        "read_only": block.read_only,
        "version": block.version,
    }


def version_shape(version: BlockVersion) -> Data:
    """A version, with who wrote it, where and when."""
    author = version.author
    return {
        "version": version.version,
        "value": version.value,
        "diff": version.diff,
        "author": author.kind,
        "run_id": author.run_id,
        "message_id": author.message_id,
        "at": version.created_at,
    }


def passage_shape(passage: Passage) -> Data:
    """A passage with its origin."""
    return {
        "id": passage.id,
        "text": passage.text,
        "tags": list(passage.tags),
        "source": dict(passage.source),
        "at": passage.created_at,
    }


@pages.post("/agents/{agent_id}/memory/blocks/{label}", shows=memory)
async def edit_block(request: Request, library: AsyncPerdure) -> Notice:
    """Write a block's value, if it is still the version that the form was filled from."""
    agent_id, form, label = agent_id_of(request), await form_of(request), request.path_params["label"]
    expected = form.get("version", "")
    block = await library.services.blocks.update_of_agent(
        agent_id,
        label,
        {"value": form.get("value", "")},
        expected=int(expected) if expected.isdigit() else None,
        author=AUTHOR,
    )
    return Notice(
        f"Block {label!r} was changed; the agent reads it with its next message.",
        undo=f"/agents/{agent_id}/memory/blocks/{label}/restore",
        fields={"version": str(block.version - 1)},
    )


@pages.post("/agents/{agent_id}/memory/blocks/{label}/restore", shows=memory)
async def restore_block(request: Request, library: AsyncPerdure) -> Notice:
    """Write the value of an earlier version again."""
    agent_id, label = agent_id_of(request), request.path_params["label"]
    version = int(field_of(await form_of(request), "version"))
    await library.services.blocks.restore(agent_id, label, version, author=AUTHOR)
    return Notice(f"Block {label!r} is as it was in version {version}.")


@pages.post("/agents/{agent_id}/memory/passages", shows=memory)
async def add_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Store a text in the archive."""
    form = await form_of(request)
    tags = tuple(tag.strip() for tag in form.get("tags", "").split(",") if tag.strip())
    passage = NewPassage(text=field_of(form, "text"), tags=tags)
    await library.services.passages.insert_of_agent(agent_id_of(request), passage)
    return Notice("The text was stored in the archive.")


@pages.post("/agents/{agent_id}/memory/passages/{passage_id}", shows=memory)
async def edit_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Change the text of a passage."""
    text, passage_id = field_of(await form_of(request), "text"), PassageId(request.path_params["passage_id"])
    await library.services.passages.update(agent_id_of(request), passage_id, {"text": text})
    return Notice("The passage was changed.")


@pages.post("/agents/{agent_id}/memory/passages/{passage_id}/delete", shows=memory)
async def delete_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a passage."""
    passage_id = PassageId(request.path_params["passage_id"])
    await library.services.passages.delete(agent_id_of(request), passage_id)
    return Notice("The passage was deleted.")
