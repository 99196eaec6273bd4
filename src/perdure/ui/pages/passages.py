"""What the memory page does with an archive's texts: store, change, tag and delete them, and take that back."""

from __future__ import annotations

from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.core.forgetting.values import Correction
from perdure.core.ids import PassageId
from perdure.domain.archives.passages import NewPassage, PassageChanges
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.memory import memory, page_author
from perdure.ui.render import Notice, Pages, agent_id_of, field_of, form_of, is_number

pages = Pages()


@pages.post("/agents/{agent_id}/memory/passages", shows=memory)
async def add_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Store a text in the archive."""
    form = await form_of(request)
    tags = tuple(tag.strip() for tag in form.get("tags", "").split(",") if tag.strip())
    passage = NewPassage(text=field_of(form, "text"), tags=tags)
    added = await library.services.corrections.add_passage(agent_id_of(request), passage)
    return _notice("The text was stored in the archive.", added)


@pages.post("/agents/{agent_id}/memory/passages/selected", shows=memory)
async def change_selected(request: Request, library: AsyncPerdure) -> Notice:
    """Delete the selected passages, or give them a tag."""
    agent_id, form, services = agent_id_of(request), await request.form(), library.services
    ids = [PassageId(value) for value in form.getlist("passage") if isinstance(value, str)]
    if not ids:
        raise InvalidInput("no passage is selected: tick the boxes beside those that you mean")
    if form.get("choice") == "tag":
        tag = field_of(await form_of(request), "tag").strip()
        return _notice(f"Tagged {tag!r}: {len(ids)}.", await services.corrections.tag_passages(agent_id, ids, tag))
    return _notice(f"Deleted: {len(ids)}.", await services.corrections.delete_passages(agent_id, ids))


@pages.post("/agents/{agent_id}/memory/undo", shows=memory)
async def undo(request: Request, library: AsyncPerdure) -> Notice:
    """Undo a correction of memory."""
    number = field_of(await form_of(request), "number")
    if not is_number(number):
        raise InvalidInput(f"number is {number!r:.40}: write the number of a correction")
    result = await library.services.corrections.undo(agent_id_of(request), int(number), author=page_author())
    if result.conflicts:
        return Notice(f"Not all could be undone: {'; '.join(result.conflicts)}", is_error=True)
    return Notice("Undone: it is as it was before.")


@pages.post("/agents/{agent_id}/memory/passages/{passage_id}", shows=memory)
async def edit_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Change the text of a passage."""
    agent_id, passage_id = agent_id_of(request), PassageId(request.path_params["passage_id"])
    changes: PassageChanges = {"text": field_of(await form_of(request), "text")}
    edited = await library.services.corrections.edit_passage(agent_id, passage_id, changes)
    return _notice("The passage was changed.", edited)


@pages.post("/agents/{agent_id}/memory/passages/{passage_id}/delete", shows=memory)
async def delete_passage(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a passage."""
    agent_id, passage_id = agent_id_of(request), PassageId(request.path_params["passage_id"])
    deleted = await library.services.corrections.delete_passages(agent_id, [passage_id])
    return _notice("The passage was deleted.", deleted)


def _notice(text: str, correction: Correction) -> Notice:
    """What a correction did, and how it is undone."""
    where = f"/agents/{correction.agent_id}/memory/undo"
    return Notice(text, undo=where, fields={"number": str(correction.number)})
