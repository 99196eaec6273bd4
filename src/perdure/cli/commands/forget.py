"""`perdure forget` and `perdure undo`, and what `/forget` and `/undo` show."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

from perdure.cli.run import Agent, Yes, argument, command, flag, for_work

if for_work(__name__):
    from rich.console import RenderableType
    from rich.text import Text

    from perdure.cli.chat.agent_choice import chat_command, shell_word
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import View, fold, new_table, plural, visible
    from perdure.cli.work import confirm, named_agent, progress_bar
    from perdure.core.errors import NotFound
    from perdure.core.forgetting.values import PLACE_NAMES, Correction, ForgetPreview, ForgetResult, UndoResult
    from perdure.library.agent import AsyncAgent
    from perdure.library.origins.why import is_id_start

SHOWN_MAX = 20
EXCERPT_CHARS = 100


@command("forget")
async def forget(
    view: View,
    agent: Agent,
    text: Annotated[str, argument("A text, or the id of a message or passage.", "TEXT")],
    erase: Annotated[bool, flag("--erase", "Remove it from the store's file too, with old versions. No undo.")] = False,
    yes: Yes = False,
) -> None:
    """Show where a text stands in memory and history, and take it out."""
    async with named_agent(view, agent, change=True) as (perdure, target):
        if is_id_start(text):
            with suppress(NotFound):  # then it is a text like any other
                text = await perdure.origins.find_id(text, "message", "passage")
        with progress_bar() as progress:
            preview = await target.find_mentions(text, progress=progress)
        count = preview.total if erase else preview.in_view
        view.print(*preview_view(preview))
        if not count and not (erase and preview.unended):
            view.show(forget_shape(target, preview, ForgetResult({}, erased=erase)))
            view.hint(_nothing_hint(preview))
            return
        question, action = f"Take it out of {plural(count, 'place')}?", "forget the text"
        if erase and not count:
            question, action = "An erasure was interrupted. Go on with it?", "erase the text"
        elif erase:
            question, action = f"Remove it from {plural(count, 'row')} of the store, for good?", "erase the text"
        confirm(view, question, action=action, yes=yes)
        with progress_bar() as progress:
            result = await target.forget(text, erase=erase, progress=progress)
        if erase:
            from perdure.cli.chat.prompt import drop_typed  # it loads slowly

            drop_typed(perdure.app.settings.folder, preview.text)
        view.show(forget_shape(target, preview, result), *forget_view(result))
        if result.correction is not None:
            view.hint(f"`perdure undo {shell_word(target.name)} {result.correction.number}` brings it back.")
        else:
            view.hint("This can't be undone.")


@command("undo")
async def undo(
    view: View,
    agent: Agent,
    number: Annotated[int | None, argument("Which correction; by default the last.", "NUMBER")] = None,
    list_all: Annotated[bool, flag("--list", "List the corrections instead.")] = False,
) -> None:
    """Undo what was forgotten or corrected in an agent."""
    async with named_agent(view, agent, change=not list_all) as (_, target):
        if list_all:
            corrections = await target.corrections()
            view.show([correction_shape(one) for one in corrections], corrections_view(corrections))
            view.hint(
                f"`perdure undo {shell_word(target.name)} NUMBER` undoes one of them."
                if corrections
                else "Nothing was forgotten or corrected yet."
            )
            return
        result = await target.undo(number)
        view.show(undo_shape(result), *undo_view(result))
        view.hint(f"The agent sees it from the next message on: `{chat_command(target)}`.")


def preview_view(preview: ForgetPreview) -> list[RenderableType]:
    """Where a text stands: how often in each place, and the first mentions."""
    if not preview.total:
        return [Text(f"{fold(visible(preview.text), EXCERPT_CHARS)!r} stands nowhere.")]
    counts = new_table("count", "place", right=("count",), head=False)
    for place, name in PLACE_NAMES.items():
        if place in preview.counts:
            counts.add_row(f"{preview.counts[place]:,}", name)
    mentions = new_table("place", "name", "text", styles={"place": "dim"}, head=False)
    for mention in preview.mentions[:SHOWN_MAX]:
        name = fold(visible(mention.name), 30)
        mentions.add_row(PLACE_NAMES[mention.place], name, fold(visible(mention.excerpt), EXCERPT_CHARS))
    parts: list[RenderableType] = [counts, mentions]
    if preview.total > SHOWN_MAX:
        parts.append(Text(f"… and {preview.total - SHOWN_MAX:,} more", "dim"))
    if preview.shared_with:
        agents = plural(len(preview.shared_with), "other agent")
        parts.append(Text(f"{agents} shares a block, archive or folder with it: {', '.join(preview.shared_with[:5])}"))
    return parts


def forget_view(result: ForgetResult) -> list[RenderableType]:
    """What was forgotten."""
    if result.erased:
        return [Text(f"Erased from {plural(result.total, 'row')}; the file was written anew.")]
    return [Text(f"Forgotten in {plural(result.total, 'place')}.")]


def forget_shape(agent: AsyncAgent, preview: ForgetPreview, result: ForgetResult) -> object:
    """What programs get."""
    number = None if result.correction is None else result.correction.number
    return {
        "agent": agent.id,
        "found": dict(preview.counts),
        "forgotten": dict(result.counts),
        "erased": result.erased,
        "correction": number,
    }


def undo_view(result: UndoResult) -> list[RenderableType]:
    """What was undone, and what was not."""
    text = fold(visible(result.correction.text), EXCERPT_CHARS)
    lines = [Text(f"Undone in {plural(result.restored, 'place')}: {text}")]
    return [*lines, *(Text(f"not undone: {visible(one)}", "yellow") for one in result.conflicts)]


def undo_shape(result: UndoResult) -> object:
    """What programs get."""
    shape = {"undone": result.correction.number, "restored": result.restored}
    return shape | {"conflicts": list(result.conflicts)}


def corrections_view(corrections: Sequence[Correction]) -> RenderableType:
    """The corrections of an agent, the newest first."""
    table = new_table("number", "when", "what", "state", right=("number",))
    for one in corrections:
        state = "undone" if one.undone_at else plural(one.items, "change")
        when = one.created_at.astimezone().strftime("%Y-%m-%d %H:%M")
        table.add_row(str(one.number), when, fold(visible(one.text), EXCERPT_CHARS), state)
    return table


def correction_shape(one: Correction) -> object:
    """What programs get."""
    return fields(one, "number", "kind", "text", "created_at", "undone_at", changes="items")


def _nothing_hint(preview: ForgetPreview) -> str:
    if preview.unended:
        return "An erasure of this agent has not ended: --erase goes on with it."
    if preview.total:
        return "The agent no longer sees it; --erase removes the rest from the store."
    return "Letter case and line breaks make no difference: try fewer words of it."
