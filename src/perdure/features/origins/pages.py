"""What an agent's memory came from, what came from each source, and a button that takes it back; and how a text is
forgotten: where it stands is shown first, then it goes from what the agent sees, or from the store itself.
"""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.text.reprs import attributes, plural
from perdure.features.origins.values import IN_VIEW, PLACE_NAMES, RevertResult, SourceSummary, WriteText
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.home import agent_frame, correction_notice, page_author
from perdure.ui.render import Data, Notice, Pages, agent_of, field_of, form_of

MENTIONS_MAX = 30

pages = Pages()


@pages.get("/agents/{agent_id}/forget", "forget.html")
async def forget(request: Request, library: AsyncPerdure) -> Data:
    """The page that finds a text in memory: a typed one, or that of the message or passage `of`; or the empty form."""
    own = agent_of(request, library)
    agent = await library.all_agents.resolve(own.id)
    form = await form_of(request) if request.method == "POST" else {}
    text = form.get("text") or request.query_params.get("of", "")
    data = agent_frame(agent, "Forget", "memory") | {"text": text, "preview": None, "problem": ""}
    if not text.strip():
        return data
    try:
        found = await own.find_mentions(text)
    except (InvalidInput, NotFound) as error:
        return data | {"problem": str(error)}
    return data | {
        "text": found.text,
        "preview": {
            **attributes(found, "total", "in_view", "unended", "shared_with"),
            "counts": [
                {"place": name, "count": found.counts[place], "in_view": place in IN_VIEW}
                for place, name in PLACE_NAMES.items()
                if place in found.counts
            ],
            "mentions": [asdict(one) | {"place": PLACE_NAMES[one.place]} for one in found.mentions[:MENTIONS_MAX]],
        },
    }


@pages.post("/agents/{agent_id}/forget/find", shows=forget)
async def find(request: Request, library: AsyncPerdure) -> Notice:
    """Show where the text from the form occurs."""
    field_of(await form_of(request), "text")
    return Notice("")


@pages.post("/agents/{agent_id}/forget", shows=forget)
async def forget_text(request: Request, library: AsyncPerdure) -> Notice:
    """Take the text out of the agent's view; with `erase`, and `sure`, out of the store."""
    agent, form = agent_of(request, library), await form_of(request)
    erase = form.get("erase") == "yes"
    if erase and form.get("sure") != "yes":
        raise InvalidInput("nothing was erased: tick the box to say that nobody can undo it")
    result = await agent.forget(field_of(form, "text"), erase=erase, author=page_author())
    if erase:
        return Notice(f"Erased from {result.total:,} rows; the store's file was rewritten.")
    if result.correction is None:
        return Notice("The agent no longer sees it anywhere.")
    return correction_notice(f"Forgotten in {plural(result.total, 'place')}.", agent.id, result.correction.number)


SOURCES_MAX, WRITES_MAX = 200, 100


@pages.get("/agents/{agent_id}/sources", "sources.html")
async def sources(request: Request, library: AsyncPerdure) -> Data:
    """The sources of the agent's memory; with `of` the writes of one of them, or of a run."""
    own = agent_of(request, library)
    agent = await library.all_agents.resolve(own.id)
    chosen = request.query_params.get("of", "").strip()
    writes = await own.sources.show(chosen, limit=WRITES_MAX) if chosen else []
    found = await own.sources.list(limit=SOURCES_MAX)
    return agent_frame(agent, "Sources", "memory") | {
        "sources": [_source_shape(one) for one in found],
        "chosen": chosen,
        "writes": [_write_shape(one) for one in writes],
        "stands": any(write.stands for write in writes),
    }


def _source_shape(summary: SourceSummary) -> Data:
    of_source = {name: f"source.{name}" for name in ("label", "name", "is_trusted")}
    shape = attributes(summary, "title", "blocks", "passages", "facts", "reverted", at="last_at", **of_source)
    return {"source": str(summary.source)} | shape


def _write_shape(written: WriteText) -> Data:
    write = written.write
    return {
        **attributes(write, "id", "kind", "label", "run_id", at="created_at"),
        **attributes(written, "name", "text", "stands"),
        "reverted": write.reverted_by is not None,
        "why": str(write.owner_id) if write.kind == "block" else write.ref if write.kind == "passage" else None,
    }


@pages.post("/agents/{agent_id}/sources/revert", shows=sources)
async def revert(request: Request, library: AsyncPerdure) -> Notice:
    """Take back all from a source, or one write."""
    agent, form = agent_of(request, library), await form_of(request)
    if write_id := form.get("write"):
        result = await agent.sources.revert_writes([write_id], author=page_author())
    else:
        result = await agent.sources.revert(field_of(form, "source"), author=page_author())
    text = _describe(result)
    if result.correction is None:
        return Notice(text, is_error=bool(result.conflicts))
    return correction_notice(text, agent.id, result.correction)


def _describe(result: RevertResult) -> str:
    """Return a sentence about what a revert undid, and what it left and why."""
    counts = {"edit of blocks": result.blocks, "passage": result.passages, "fact": result.facts}
    many = {"edit of blocks": "edits of blocks"}
    done = ", ".join(plural(count, one, many.get(one, "")) for one, count in counts.items() if count)
    conflicts = "; ".join(conflict.reason for conflict in result.conflicts)
    text = f"Taken back: {done}." if done else "Nothing was taken back."
    return f"{text} Left as it is: {conflicts}." if conflicts else text
