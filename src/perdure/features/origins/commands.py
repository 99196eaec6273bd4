"""`perdure source` and `perdure memory revert`: what an agent's memory came from, and taking it back; `perdure why`,
`perdure forget` and `perdure undo`. The chat shows the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from perdure.cli.commands.run import Agent, LastAgent, Yes, agent_option, argument, command, flag, for_work, option
from perdure.core.features import Point
from perdure.core.ids import AgentId

if for_work(__name__):
    from rich.console import RenderableType
    from rich.padding import Padding
    from rich.text import Text

    from perdure.cli.session.agent_choice import chat_command, shell_word
    from perdure.cli.session.session import ChatSession
    from perdure.cli.session.work import confirm, get_agent, progress_bar
    from perdure.cli.views.json import fields
    from perdure.cli.views.render import diff_view
    from perdure.cli.views.view import Output, fold, local_time, new_table, plural, visible
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.forgetting.origins import origin_shape
    from perdure.features.origins.origin_values import Origin
    from perdure.features.origins.values import (
        PLACE_NAMES,
        ForgetPreview,
        ForgetResult,
        RevertResult,
        SourceSummary,
        UndoResult,
        WriteText,
    )
    from perdure.features.origins.views import origin_view
    from perdure.library.agent import AsyncAgent
    from perdure.library.ids import is_id_start
    from perdure.library.perdure import AsyncPerdure

MemoryOwner = Annotated[str | None, agent_option("Whose memory, by name or id; by default the agent used last.")]
SourceName = Annotated[str, argument("As in the list, such as web:https://example.com, or the id of a run.", "SOURCE")]
DryRun = Annotated[bool, flag("--dry-run", "Only say what would be taken back.")]
Limit = Annotated[int, option("How many.", name="--limit", min=1, max=1_000)]
TEXT_CHARS, NAME_CHARS = 400, 80
SHOWN_MAX = 20
EXCERPT_CHARS = 100
ANSWER_ROWS = 100
"""Newest messages among which the last answer is."""

NOT_SEARCHED: Point[[AgentId], str] = Point("not_searched")
"""A line about what belongs to an agent and is not searched for a text that is to be forgotten; empty: nothing is."""


@command("memory revert", change=True)
async def revert_writes(
    view: Output,
    writes: Annotated[
        list[str], argument("A version of a block as block-…@3, or the id of a passage or episode.", "WRITE...")
    ],
    agent: Agent,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Take back writes to an agent's memory. `perdure undo` brings them back."""
    await _revert(view, agent, partial(agent.sources.revert_writes, writes), dry_run=dry_run, yes=yes)


@command("source list")
async def list_sources(view: Output, agent: LastAgent, limit: Limit = 100) -> None:
    """List what the memory of an agent came from: web pages, files, MCP servers, tools, agents, imports."""
    found = await agent.sources.list(limit=limit)
    numbers = ("blocks", "passages", "facts", "reverted")
    table = new_table("source", *numbers, "last", right=numbers)
    for one in found:
        title = f" ({visible(one.title)})" if one.title else ""
        name = fold(visible(str(one.source)), NAME_CHARS) + title
        counts = (f"{count:,}" if count else "-" for count in (one.blocks, one.passages, one.facts, one.reverted))
        table.add_row(name, *counts, local_time(one.last_at))
    view.show([_source_shape(one) for one in found], *([table] if found else []))
    more = f"`perdure source show SOURCE {shell_word(agent.name)}` prints what came from one."
    view.hint(more if found else "The agent has not written anything into its memory yet.")


def _write_view(written: WriteText) -> list[RenderableType]:
    """Return the lines about a write: its target, its time, how trusted its source is, and its text."""
    write = written.write
    reverted = write.reverted_by is not None
    state = "" if written.stands else "  reverted" if reverted else "  not there any more"
    parts: list[RenderableType] = [
        Text.assemble(
            (f"{write.kind} {visible(written.name)}", "bold"),
            (f"  {write.label}", "yellow"),
            (f"  {write.id}  {local_time(write.created_at)}", "dim"),
            (state, "dim"),
        )
    ]
    if written.text and write.kind == "block":
        parts.append(diff_view(written.text))
    elif written.text:
        parts.append(Padding(Text(fold(visible(written.text), TEXT_CHARS)), (0, 0, 0, 2)))
    return parts


@command("source show")
async def show_source(view: Output, source: SourceName, agent: Agent, limit: Limit = 100) -> None:
    """Show the blocks, passages and facts that came from one source, or were written in one run."""
    writes = await agent.sources.show(source, limit=limit)
    parts = [part for written in writes for part in _write_view(written)]
    none = Text("Nothing in its memory came from this source.")
    view.show([_write_shape(written) for written in writes], *(parts or [none]))
    if any(written.stands for written in writes):
        command = f"perdure source revert {shell_word(source)} {shell_word(agent.name)}"
        view.hint(f"`{command}` takes all of it back, and can be undone.")


@command("source revert", change=True)
async def revert_source(
    view: Output, source: SourceName, agent: Agent, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Take back all that came from one source or run. `perdure undo` brings it back."""
    await _revert(view, agent, partial(agent.sources.revert, source), dry_run=dry_run, yes=yes)


async def _revert(
    view: Output, agent: Agent, revert: Callable[..., Awaitable[RevertResult]], *, dry_run: bool, yes: bool
) -> None:
    """Show what a revert would do, ask, and do it."""
    result = await revert(dry_run=True)
    if not dry_run and result.writes:
        view.print(*_result_view(result))
        confirm(view, f"Take {plural(len(result.writes), 'write')} back?", action="take writes back", yes=yes)
        result = await revert()
    conflicts = [fields(one, "name", "reason", "value", "merged", write="write_id") for one in result.conflicts]
    shape = fields(result, "writes", "blocks", "passages", "facts", "correction", dry_run="is_dry_run")
    view.show(shape | {"conflicts": conflicts}, *_result_view(result))
    if result.correction is not None:
        view.hint(f"`perdure undo {shell_word(agent.name)} {result.correction}` brings it back.")


def _result_view(result: RevertResult) -> list[RenderableType]:
    """What a revert took back, or would, and what it could not."""
    if not result.writes and not result.conflicts:
        return [Text("Nothing from this source is left.")]
    verb = "Would take back" if result.is_dry_run else "Took back"
    counts = (
        plural(result.blocks, "edit of blocks", "edits of blocks"),
        plural(result.passages, "passage"),
        plural(result.facts, "fact"),
    )
    parts: list[RenderableType] = [Text(f"{verb} {', '.join(counts)}.")]
    for conflict in result.conflicts:
        parts.append(Text(f"conflict in {conflict.write_id}: {visible(conflict.reason)}", style="yellow"))
        parts.append(Padding(Text(visible(conflict.merged)), (0, 0, 0, 2)))
    return parts


@command("why", finds="memory or answer")
async def why(
    view: Output,
    perdure: AsyncPerdure,
    of: Annotated[str, argument("A run, step, message, passage, block or fact by id, or words of a memory.", "ID")],
    agent: MemoryOwner = None,
) -> None:
    """Show where a memory comes from, or what was behind an answer.

    For a memory: who wrote it, and in answer to what. For an answer: what was in its request.

    The beginning of an id is enough; block-...:3 is a line of a block.
    """
    if agent is None and is_id_start(of):
        origin = await perdure.agent_of(None).why(of)
    else:
        origin = await (await get_agent(view, perdure, agent)).why(of)
    show_origin(view, origin)


def show_origin(view: Output, origin: Origin) -> None:
    """Show an origin."""
    view.show({"why": origin_shape(origin)}, *origin_view(origin))
    view.hint("`perdure why ID` opens each of these ids")


@command("forget", change=True)
async def forget(
    view: Output,
    perdure: AsyncPerdure,
    text: Annotated[str, argument("A text, or the id of a message or passage.", "TEXT")],
    agent: Agent,
    erase: Annotated[bool, flag("--erase", "Remove it from the store's file too, with old versions. No undo.")] = False,
    yes: Yes = False,
) -> None:
    """Find a text in memory and history, and remove it."""
    if is_id_start(text):
        with suppress(NotFound):  # then it is a text like any other
            text = await perdure.ids.find(text, "message", "passage")
    with progress_bar() as progress:
        preview = await agent.find_mentions(text, progress=progress)
    count = preview.total if erase else preview.in_view
    view.print(*preview_view(preview), *filter(None, NOT_SEARCHED(agent.id)))
    if not count and not (erase and preview.unended):
        view.show(forget_shape(agent, preview, ForgetResult({}, erased=erase)))
        view.hint(_nothing_hint(preview))
        return
    question, action = f"Take it out of {plural(count, 'place')}?", "forget the text"
    if erase and not count:
        question, action = "An erasure was interrupted. Go on with it?", "erase the text"
    elif erase:
        question, action = f"Remove it from {plural(count, 'row')} of the store, for good?", "erase the text"
    confirm(view, question, action=action, yes=yes)
    with progress_bar() as progress:
        result = await agent.forget(text, erase=erase, progress=progress)
    if erase:
        from perdure.cli.session.prompt import remove_typed  # it loads slowly

        remove_typed(perdure.app.settings.folder, preview.text)
    view.show(forget_shape(agent, preview, result), *forget_view(result))
    if result.correction is not None:
        view.hint(f"`perdure undo {shell_word(agent.name)} {result.correction.number}` brings it back.")
    else:
        view.hint("This can't be undone.")


@command("undo", change=lambda args: not args["list_all"])
async def undo(
    view: Output,
    agent: Agent,
    number: Annotated[int | None, argument("Which correction; by default the last.", "NUMBER")] = None,
    list_all: Annotated[bool, flag("--list", "List the corrections instead.")] = False,
) -> None:
    """Undo what was forgotten or corrected in an agent."""
    if not list_all:
        show_undone(view, await agent.undo(number))
        view.hint(f"The agent sees it from the next message on: `{chat_command(agent)}`.")
        return
    corrections = await agent.corrections()
    table = new_table("number", "when", "what", "state", right=("number",))
    for one in corrections:
        state = "undone" if one.undone_at else plural(one.items, "change")
        table.add_row(str(one.number), local_time(one.created_at), fold(visible(one.text), EXCERPT_CHARS), state)
    names = ("number", "kind", "text", "created_at", "undone_at")
    view.show([fields(correction, *names, changes="items") for correction in corrections], table)
    more = f"`perdure undo {shell_word(agent.name)} NUMBER` undoes one of them."
    view.hint(more if corrections else "Nothing was forgotten or corrected yet.")


def preview_view(preview: ForgetPreview) -> list[RenderableType]:
    """In which places a text was found and how often, and the first mentions."""
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
    """What `perdure forget --json` prints: how often the text was found and forgotten in each place."""
    return {
        "agent": agent.id,
        "found": dict(preview.counts),
        "forgotten": dict(result.counts),
        "erased": result.erased,
        "correction": None if result.correction is None else result.correction.number,
    }


def show_undone(view: Output, result: UndoResult) -> None:
    """Show what was undone, and what was not."""
    text = fold(visible(result.correction.text), EXCERPT_CHARS)
    conflicts = (Text(f"not undone: {visible(conflict)}", "yellow") for conflict in result.conflicts)
    shape = {"undone": result.correction.number, "restored": result.restored, "conflicts": list(result.conflicts)}
    view.show(shape, Text(f"Undone in {plural(result.restored, 'place')}: {text}"), *conflicts)


def _nothing_hint(preview: ForgetPreview) -> str:
    if preview.unended:
        return "An erasure of this agent has not ended: --erase goes on with it."
    if preview.total:
        return "The agent no longer sees it; --erase removes the rest from the store."
    return "Letter case and line breaks make no difference: try fewer words of it."


async def why_in_chat(session: ChatSession, argument: str) -> None:
    """Show what was in the request behind the last answer, or where the memory with an id or words comes from."""
    if not argument:
        newest = await session.agent.messages(conversation=session.conversation, limit=ANSWER_ROWS, newest_first=True)
        answer = next((message for message in newest if message.role == "assistant"), None)
        if answer is None:
            raise InvalidInput("there is no answer yet: /why ID shows where a memory comes from")
        argument = answer.id
    show_origin(session.view, await session.agent.why(argument, conversation=session.conversation))


async def forget_in_chat(session: ChatSession, argument: str) -> None:
    """Take a text out of memory and history; /undo brings it back."""
    preview = await session.agent.find_mentions(argument)
    result = await session.agent.forget(argument)
    parts = [*filter(None, NOT_SEARCHED(session.agent.id)), *(forget_view(result) if result.correction else ())]
    session.view.show(forget_shape(session.agent, preview, result), *preview_view(preview), *parts)
    left = sum(preview.counts.values()) - preview.in_view
    back = "/undo brings it back" if result.correction else "nothing was in view"
    erase = f"`perdure forget TEXT {shell_word(session.agent.name)} --erase`"
    hint = f"; old versions and records hold it: {erase} removes those"
    session.view.hint(back + (hint if left or result.correction else ""))


async def undo_in_chat(session: ChatSession, argument: str) -> None:
    """Undo what was forgotten or corrected last."""
    if argument and not argument.isdecimal():
        raise InvalidInput("that is not how /undo is used: /undo [NUMBER]")
    show_undone(session.view, await session.agent.undo(int(argument) if argument else None))
    session.view.hint("the agent sees it from the next message on")


def _source_shape(summary: SourceSummary) -> dict[str, Any]:
    """A source as JSON."""
    counts = ("blocks", "passages", "facts", "reverted")
    shape = fields(summary, "title", *counts, "first_at", "last_at", label="source.label", name="source.name")
    return {"source": str(summary.source)} | shape


def _write_shape(written: WriteText) -> dict[str, Any]:
    """A write of memory as JSON."""
    names = ("id", "kind", "label", "agent_id", "run_id", "message_id", "created_at", "reverted_by")
    sources = [{"source": str(each.source), "message_ids": each.message_ids} for each in written.write.sources]
    return fields(written.write, *names) | fields(written, "name", "text", "stands") | {"sources": sources}
