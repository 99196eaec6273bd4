"""Where a memory, a fact or an answer comes from, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from perdure.cli.views.view import first_names, fold, local_time, plural, visible
from perdure.core.text.zones import local, zone
from perdure.library.origins.values import AnswerOrigin, FactOrigin, MemoryOrigin, MessageText, Origin, Write

SHOWN_CHARS = 200
SOURCES_SHOWN = 5
AUTHORS = {
    "person": "a person",
    "correction": "a person",
    "program": "a program",
    "policy": "Perdure",
    "system": "Perdure",
}


def origin_view(origin: Origin) -> Iterator[RenderableType]:
    """The parts of an origin, each with the id that opens it."""
    match origin:
        case MemoryOrigin():
            yield from _memory_view(origin)
        case FactOrigin():
            yield from _fact_view(origin)
        case AnswerOrigin():
            yield from _answer_view(origin)


def _memory_view(origin: MemoryOrigin) -> Iterator[RenderableType]:
    place = f"  line {origin.line}" if origin.line is not None else ""
    name = f"{origin.kind} {origin.label}" if origin.label else origin.kind
    yield Text.assemble((visible(name), "bold cyan"), place, (f"  {origin.id}", "dim"))
    yield _indented(origin.text)
    if origin.earlier_writes:
        yield Text(f"{plural(origin.earlier_writes, 'earlier change')} not shown", style="dim")
    for write in origin.writes:
        yield from _write_view(write, with_text=len(origin.writes) > 1)
    if origin.stands_for:
        yield Text(f"It stands for {plural(origin.message_count, 'message')}:", style="bold")
        yield from (_message_line(message) for message in origin.stands_for)
    if (file := origin.source.get("file_name")) is not None:
        yield Text(f"From the file {visible(str(file))}")


def _write_view(write: Write, *, with_text: bool) -> Iterator[RenderableType]:
    """Who wrote, when, by which call, and in answer to what."""
    author = {"agent": f"agent {write.author_name or write.author_id}", "user": "a person", "system": "Perdure"}
    version = "" if write.version is None else f"version {write.version}  "
    verb = "removed by" if write.text is None else "written by"
    yield Text.assemble(
        (f"{version}{verb} {visible(author[write.author])}", "bold"), (f"  {local_time(write.at)}", "dim")
    )
    if write.sources:
        names = [visible(str(one.source)) for one in write.sources]  # the least trusted first
        yield Text(f"  may come from {first_names(names, SOURCES_SHOWN)}", style="yellow")
    if with_text and write.text is not None:
        yield _indented(write.text)
    if write.run_id is not None:
        ids = [write.run_id, write.step_id, f"{write.tool} in {write.call_message_id}" if write.tool else None]
        yield _ids(ids)
    yield from (_message_line(message) for message in write.messages)


def _fact_view(origin: FactOrigin) -> Iterator[RenderableType]:
    """The versions of a fact with their authors and reasons, and its sources with their texts."""
    yield Text.assemble(("fact", "bold cyan"), f"  {visible(origin.relation)}", (f"  {origin.id}", "dim"))
    yield _indented(origin.text)
    for number, version in enumerate(origin.versions, 1):
        author = AUTHORS.get(version.author, version.author)
        model = f" with {version.model}" if version.model else ""
        head = f"version {number}  {version.change} by {visible(author)}{visible(model)}: {version.reason}"
        yield Text.assemble((head, "bold"), (f"  {local_time(version.created_at)}", "dim"))
        if version.expired_at == version.created_at:  # nobody believed it, as a version that says who deleted a fact
            continue
        yield _indented(version.text)
        believed = "" if version.expired_at is None else f"; believed until {local_time(version.expired_at)}"
        state = "" if version.state == "active" else f"; {version.state}"
        yield Text(f"  {true_times(version.valid_at, version.invalid_at)}{believed}{state}", style="dim")
    for source in origin.sources:
        who = source.name or source.role or source.kind
        yield _line(f"from {who}, {local_time(source.at)}", source.id, source.text)
        if source.run_id is not None:
            yield Text(f"    {'  '.join(filter(None, (source.run_id, source.step_id)))}", style="dim")


def true_times(valid_at: datetime | None, invalid_at: datetime | None, timezone: str | None = None) -> str:
    """When a fact was true, in words, in this time zone or that of the times."""
    if valid_at is None and invalid_at is None:
        return "true at an unknown time"
    since = "" if valid_at is None else f" since {day(valid_at, timezone)}"
    until = "" if invalid_at is None else f" until {day(invalid_at, timezone)}"
    return f"true{since}{until}"


def day(at: datetime, timezone: str | None = None) -> str:
    """A date there, with the time where it is not midnight: facts that name only a day have that."""
    at = local(at, zone(timezone)) if timezone else at
    return at.strftime("%Y-%m-%d" if (at.hour, at.minute, at.second) == (0, 0, 0) else "%Y-%m-%d %H:%M")


def _answer_view(origin: AnswerOrigin) -> Iterator[RenderableType]:
    yield Text.assemble(("answer", "bold cyan"), f"  {visible(origin.model)}  {local_time(origin.at)}")
    yield _ids((origin.run_id, origin.step_id, origin.message_id))
    yield _indented(origin.text)
    if origin.problem is not None:
        yield Text(f"Its request can't be built again: {visible(origin.problem)}", style="yellow")
        return
    yield Text("In its request:", style="bold")
    for block in origin.blocks:
        state = "in the prompt" if block.change is None else f"{block.change} by {block.message_id}"
        yield _line(f"block {block.label}, version {block.version}, {state}", block.block_id, block.text)
    for summary in origin.summaries:
        yield _line(f"summary of {plural(summary.message_count, 'message')}", summary.handle, summary.text)
    for recalled in origin.recalled:
        yield _line(f"recalled {recalled.kind}, score {recalled.score:.2f}", recalled.id, recalled.text)
    for search in origin.searches:
        yield _line(f"result of {search.tool} {fold(search.arguments, 60)}", search.message_id, search.text)
    yield from (_message_line(message) for message in origin.messages if message.kind != "summary")


def _message_line(message: MessageText) -> RenderableType:
    return _line(
        f"{message.kind if message.kind != 'message' else message.role} {message.name or ''}", message.id, message.text
    )


def _line(what: str, id_: str | None, text: str | None) -> RenderableType:
    """What something is, its id, and the beginning of its text."""
    shown = "(deleted)" if text is None else fold(text, SHOWN_CHARS)
    head = Text.assemble(visible(what.strip()), (f"  {visible(id_ or '')}", "dim"))
    return Group(Padding(head, (0, 0, 0, 2)), *([Padding(Text(visible(shown)), (0, 0, 0, 4))] if shown else []))


def _ids(ids: Sequence[str | None]) -> RenderableType:
    return Padding(Text("  ".join(visible(one) for one in ids if one), style="dim"), (0, 0, 0, 2))


def _indented(text: str) -> RenderableType:
    return Padding(Text(visible(text)) if text else Text("(no text)", style="dim"), (0, 0, 0, 2))
