"""Memory: the blocks of an agent with their versions, and its archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from perdure.core.agents import AgentFilter
from perdure.core.blocks import DEFAULT_LIMIT_CHARS, Block, BlockFilter, BlockVersion
from perdure.core.errors import InvalidInput, NotFound, VersionConflict
from perdure.core.forgetting.corrections import Correction
from perdure.core.forgetting.redaction import ASCII_MIN
from perdure.core.ids import AgentId, BlockId, PassageId
from perdure.core.passages import Passage, PassageFilter
from perdure.core.sources import TRUST_LABELS, TrustLabel
from perdure.core.text.line_diff import diff_lines
from perdure.core.text.reprs import attributes
from perdure.domain.archives.passages import NewPassage, PassageChanges
from perdure.domain.blocks.units import NewBlock
from perdure.library.agent import AsyncAgentById
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.ui.conflicts import FormConflict, three_ways
from perdure.ui.pages.home import agent_frame, correction_notice, page_author, version_shape
from perdure.ui.render import Data, Notice, Pages, after_of, agent_of, author, field_of, form_of, is_number, url_of

LINES_MAX, PASSAGES_MAX, VERSIONS_MAX, PLOTTED_MIN = 50, 50, 50, 3
BLOCKS_MAX, SHARED_MAX = 100, 20
ROWS_MAX, ROW_CHARS = 24, 60


pages = Pages()


@pages.get("/agents/{agent_id}/memory", "memory.html", sections="memory", is_live=True)
async def memory(request: Request, library: AsyncPerdure) -> Data:
    """The page of memory: blocks, the versions of `block`, the difference between versions `from` and `to`; the
    archive, newest first or the result of a search, with `tag` only texts with that tag."""
    own, query = agent_of(request, library), request.query_params
    agent = await library.all_agents.resolve(own.id)
    blocks = await own.blocks.list()
    label = query.get("block")
    versions = [] if not label else await own.blocks.history(label, limit=VERSIONS_MAX)
    search, tag = query.get("q", "").strip(), query.get("tag", "").strip()
    where = PassageFilter(tags=(tag,) if tag else ())
    after = None
    if search:
        hits = await own.search_passages(search, where, limit=PASSAGES_MAX)
        texts = [hit.passage for hit in hits]
        passages = [passage_shape(hit.passage) | {"score": hit.score} for hit in hits]
    else:
        page = Page(PASSAGES_MAX, ascending=False, after=query.get("after"))
        texts = found = [*await own.list_passages(page, where=where)]
        passages, after = [passage_shape(one) for one in found], after_of(found, PASSAGES_MAX)
    labels, attached = await own.labels(texts), {block.id for block in blocks}
    others = await library.blocks.page(BlockFilter(), Page(BLOCKS_MAX, ascending=False))
    return agent_frame(agent, "Memory", "memory") | {
        "blocks": [
            block_shape(block) | {"shared": await _sharers(library, own.id, block), "labels": await _labels(own, block)}
            for block in blocks
        ],
        "others": [block_shape(block) for block in others if block.id not in attached],
        "limit": DEFAULT_LIMIT_CHARS,
        "label": label,
        "versions": [version_shape(version) for version in versions],
        "difference": await _difference(request, own, label),
        "plot": _growth(versions),
        "passages": [passage | {"label": labels.get(passage["id"])} for passage in passages],
        "search": search,
        "tag": tag,
        "after": after,
    }


async def _sharers(library: AsyncPerdure, agent_id: AgentId, block: Block) -> list[Data]:
    """The other agents that have a block."""
    where, page = AgentFilter(block_id=block.id), Page(SHARED_MAX, ascending=True)
    agents = await library.all_agents.page(where, page, "created")
    return [{"id": agent.id, "name": agent.name} for agent in agents if agent.id != agent_id]


async def _labels(agent: AsyncAgentById, block: Block) -> list[str]:
    """The trust labels of the untrusted sources that lines in a block come from, the least trusted first."""
    lines, found = set(block.value.split("\n")), set[TrustLabel]()
    for version in await agent.blocks.history(block.label, limit=VERSIONS_MAX):
        added = (text for mark, text in diff_lines(version.diff) if mark == "+")
        if version.author.sources and not lines.isdisjoint(added):
            found |= {source.source.label for source in version.author.sources if not source.source.is_trusted}
    return sorted(found, key=TRUST_LABELS.index, reverse=True)


async def _difference(request: Request, agent: AsyncAgentById, label: str | None) -> Data | None:
    """What changed between two versions of a block. Raises: InvalidInput, NotFound."""
    old, new = request.query_params.get("from", ""), request.query_params.get("to", "")
    if not label or not old or not new:
        return None
    first, second = _number("from", old), _number("to", new)
    return {"from": first, "to": second, "text": await agent.blocks.compare(label, first, second)}


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
        **attributes(
            block, "id", "label", "value", "description", "read_only", "is_protected", "version", limit="limit_chars"
        ),
        "lines": [line for line in block.value.split("\n") if len(line.strip()) >= ASCII_MIN][:LINES_MAX],
        "rows": min(ROWS_MAX, 2 + block.value.count("\n") + len(block.value) // ROW_CHARS),
        "chars": len(block.value),
    }


def passage_shape(passage: Passage) -> Data:
    """A passage as the page shows it, with its source, such as a file."""
    return attributes(passage, "id", "text", "tags", "state", at="created_at") | {"source": dict(passage.source)}


@pages.post("/agents/{agent_id}/memory/blocks", shows=memory)
async def create_block(request: Request, library: AsyncPerdure) -> Notice:
    """Give the agent a new block, or with `block_id` one that there is."""
    agent, form = agent_of(request, library), await form_of(request)
    if block_id := form.get("block_id"):
        await agent.blocks.attach(BlockId(block_id))
        return Notice("The block was attached; the agent reads it with its next message.")
    new = NewBlock(label=field_of(form, "label").strip(), value=form.get("value", ""), **_settings_of(form))
    block = await agent.blocks.add(new, author=page_author())
    undo = f"/agents/{agent.id}/memory/block-detach/{block.label}"
    return Notice(f"Block {block.label!r} was created; the agent reads it with its next message.", undo=undo)


@pages.post("/agents/{agent_id}/memory/block-detach/{label:path}", shows=memory)
async def detach_block(request: Request, library: AsyncPerdure) -> Notice:
    """Take a block out of the agent's memory; it stays in the store."""
    agent, label = agent_of(request, library), request.path_params["label"]
    block = await agent.blocks.get(label)
    await agent.blocks.detach_block(block.id)
    undo, fields = f"/agents/{agent.id}/memory/blocks", {"block_id": block.id}
    return Notice(f"Block {label!r} was detached; it stays in the store.", undo=undo, fields=fields)


@pages.post("/agents/{agent_id}/memory/block-settings/{label:path}", shows=memory)
async def edit_settings(request: Request, library: AsyncPerdure) -> Notice:
    """Change a block's description, its limit, and whether the agent may write it."""
    agent, label = agent_of(request, library), request.path_params["label"]
    changes = _settings_of(await form_of(request))
    before = await agent.blocks.get(label)
    await agent.blocks.edit(label, changes, author=page_author())
    fields = {"description": before.description or "", "limit": str(before.limit_chars)}
    return Notice(
        f"The settings of block {label!r} were changed.",
        undo=request.url.path,
        fields=fields | ({"read_only": "yes"} if before.read_only else {}),
    )


def _settings_of(form: dict[str, str]) -> dict[str, Any]:
    """The settings of a block as its form has them. Raises: InvalidInput."""
    return {
        "description": form.get("description", "").strip() or None,
        "limit_chars": _number("limit", field_of(form, "limit")),
        "read_only": form.get("read_only") == "yes",
    }


def _number(name: str, text: str) -> int:
    """A whole number of a form. Raises: InvalidInput."""
    if not is_number(text.strip()):
        raise InvalidInput(f"{name} is {text!r:.40}: write a whole number")
    return int(text)


@pages.post("/agents/{agent_id}/memory/blocks/{label:path}", shows=memory)
async def edit_block(request: Request, library: AsyncPerdure) -> Notice:
    """Write a block's value, or again that of the version `earlier`, if `version`, which was shown, is the newest."""
    agent, form, label = agent_of(request, library), await form_of(request), request.path_params["label"]
    version, earlier, value = form.get("version", ""), form.get("earlier", ""), form.get("value")
    if value is None and earlier:
        value = await _value_of(agent, label, _number("earlier", earlier))
    before = await agent.blocks.get(label)
    expected = int(version) if is_number(version) else None
    try:
        block = await agent.blocks.edit(label, {"value": value or ""}, expected=expected, author=page_author())
    except VersionConflict as conflict:
        check_meanwhile(await agent.blocks.history(label, limit=VERSIONS_MAX), label, value, since=conflict.expected)
        raise
    text = f"Block {label!r} was changed; the agent reads it with its next message."
    if form.get("back"):
        text = f"Block {label!r} is as it was before."
    elif earlier:
        text = f"Block {label!r} is as it was in version {earlier}."
    if block.version != before.version + 1:  # nothing changed, or somebody else wrote in between
        return Notice(text if block.version > before.version else f"Block {label!r} is as it was.")
    # The undo is an edit against the version written here: what is written since is not lost.
    fields = {"value": before.value, "version": str(block.version), "back": "yes"}
    return Notice(text, undo=url_of(request), fields=fields)


async def _value_of(agent: AsyncAgentById, label: str, number: int) -> str:
    """The value of a version that the page shows. Raises: NotFound."""
    for version in await agent.blocks.history(label, limit=VERSIONS_MAX):
        if version.version == number:
            return version.value
    raise NotFound("block version", str(number), hint=f"the page shows the newest {VERSIONS_MAX}")


def check_meanwhile(versions: Sequence[BlockVersion], label: str, mine: str | None, *, since: int) -> None:
    """Check that nobody wrote a block, of which these are the newest versions, after the version `since`. Raises:
    FormConflict: somebody did; not if that version is too old to be among them."""
    newest, base = versions[0], next((version for version in versions if version.version == since), None)
    if base is not None and base is not newest:
        field = three_ways("value", label, base=base.value, theirs=newest.value, mine=mine or "")
        who = newest.agent_name or author(newest.author.kind).capitalize()
        hidden = {"version": str(newest.version)}
        raise FormConflict([f"block {label}"], [field], hidden, who=f"{who} saved version {newest.version}")


@pages.post("/agents/{agent_id}/memory/passages", shows=memory)
async def add_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Store a text in the archive."""
    form = await form_of(request)
    tags = tuple(tag.strip() for tag in form.get("tags", "").split(",") if tag.strip())
    passage = NewPassage(text=field_of(form, "text"), tags=tags)
    return _notice("The text was stored in the archive.", await agent_of(request, library).add_passage(passage))


@pages.post("/agents/{agent_id}/memory/passages/selected", shows=memory)
async def change_selected(request: Request, library: AsyncPerdure) -> Notice:
    """Delete the selected passages, or give them a tag."""
    agent, form = agent_of(request, library), await request.form()
    ids = [PassageId(value) for value in form.getlist("passage") if isinstance(value, str)]
    if not ids:
        raise InvalidInput("no passage is selected: tick the boxes beside those that you mean")
    if form.get("choice") == "tag":
        tag = field_of(await form_of(request), "tag").strip()
        return _notice(f"Tagged {tag!r}: {len(ids)}.", await agent.tag_passages(ids, tag))
    return _notice(f"Deleted: {len(ids)}.", await agent.delete_passages(ids))


@pages.post("/agents/{agent_id}/memory/passages/{passage_id}", shows=memory)
async def edit_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Change the text of a passage."""
    agent, passage_id = agent_of(request, library), PassageId(request.path_params["passage_id"])
    changes: PassageChanges = {"text": field_of(await form_of(request), "text")}
    return _notice("The passage was changed.", await agent.edit_passage(passage_id, changes))


@pages.post("/agents/{agent_id}/memory/passages/{passage_id}/delete", shows=memory)
async def delete_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a passage."""
    agent, passage_id = agent_of(request, library), PassageId(request.path_params["passage_id"])
    return _notice("The passage was deleted.", await agent.delete_passages([passage_id]))


def _notice(text: str, correction: Correction) -> Notice:
    """Return a notice with a link that undoes the correction."""
    return correction_notice(text, correction.agent_id, correction.number)
