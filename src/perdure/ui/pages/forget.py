"""Forget a text: where it stands is shown first; then it goes from what the agent sees, or from the store itself."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.forgetting.values import IN_VIEW, PLACE_NAMES
from perdure.core.text.reprs import attributes
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.home import agent_shape
from perdure.ui.pages.memory import page_author
from perdure.ui.render import Data, Notice, Pages, agent_id_of, field_of, form_of

MENTIONS_MAX = 30

pages = Pages()


@pages.get("/agents/{agent_id}/forget", "forget.html")
async def forget(request: Request, library: AsyncPerdure) -> Data:
    """Where the text of the form stands, or that of the message or passage that `of` names; without one, the form."""
    agent_id = agent_id_of(request)
    agent = await library.services.agents.resolve(agent_id)
    form = await form_of(request) if request.method == "POST" else {}
    text = form.get("text") or request.query_params.get("of", "")
    data: Data = {"title": f"{agent.name} · Forget", "agent": agent_shape(agent), "tab": "memory", "text": text}
    if not text.strip():
        return data | {"preview": None, "problem": ""}
    try:
        found = await library.services.corrections.find_mentions(agent_id, text)
    except (InvalidInput, NotFound) as error:
        return data | {"preview": None, "problem": str(error)}
    return data | {
        "text": found.text,
        "problem": "",
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
    """Show where the text of the form stands."""
    field_of(await form_of(request), "text")
    return Notice("")


@pages.post("/agents/{agent_id}/forget", shows=forget)
async def forget_text(request: Request, library: AsyncPerdure) -> Notice:
    """Take the text out of the agent's view; with `erase`, and `sure`, out of the store."""
    agent_id, form = agent_id_of(request), await form_of(request)
    erase = form.get("erase") == "yes"
    if erase and form.get("sure") != "yes":
        raise InvalidInput("nothing was erased: tick the box to say that nobody can undo it")
    corrections = library.services.corrections
    result = await corrections.forget(agent_id, field_of(form, "text"), erase_text=erase, author=page_author())
    if erase:
        return Notice(f"Erased from {result.total:,} rows; the store's file was written anew.")
    if result.correction is None:
        return Notice("The agent sees it nowhere.")
    fields = {"number": str(result.correction.number)}
    places = f"{result.total:,} place{'' if result.total == 1 else 's'}"
    return Notice(f"Forgotten in {places}.", undo=f"/agents/{agent_id}/memory/undo", fields=fields)
