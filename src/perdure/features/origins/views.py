"""Where a memory, a fact or an answer comes from, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text

from perdure.cli.views.view import first_names, fold, ids_view, indented, line_view, local_time, plural, visible
from perdure.core.features import Point
from perdure.core.forgetting.origins import FactOrigin
from perdure.features.origins.origin_values import AnswerOrigin, MemoryOrigin, MessageText, Origin, Write

SOURCES_SHOWN = 5
FACT_VIEW: Point[[FactOrigin], Iterable[RenderableType]] = Point("fact_view")
"""The origin of a fact, as its feature shows it."""


def origin_view(origin: Origin) -> Iterator[RenderableType]:
    """The parts of an origin, each with the id that opens it."""
    match origin:
        case MemoryOrigin():
            yield from _memory_view(origin)
        case FactOrigin():
            for view in FACT_VIEW(origin):
                yield from view
        case AnswerOrigin():
            yield from _answer_view(origin)


def _memory_view(origin: MemoryOrigin) -> Iterator[RenderableType]:
    place = f"  line {origin.line}" if origin.line is not None else ""
    name = f"{origin.kind} {origin.label}" if origin.label else origin.kind
    yield Text.assemble((visible(name), "bold cyan"), place, (f"  {origin.id}", "dim"))
    yield indented(origin.text)
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
    """Lines about a write: who wrote, when, by which call, and in answer to what; `with_text`: also its text."""
    author = {"agent": f"agent {write.author_name or write.author_id}", "user": "a person", "system": "Perdure"}
    version = "" if write.version is None else f"version {write.version}  "
    verb = "removed by" if write.text is None else "written by"
    yield Text.assemble(
        (f"{version}{verb} {visible(author[write.author])}", "bold"), (f"  {local_time(write.at)}", "dim")
    )
    if write.sources:
        names = [visible(str(source.source)) for source in write.sources]  # the least trusted first
        yield Text(f"  may come from {first_names(names, SOURCES_SHOWN)}", style="yellow")
    if with_text and write.text is not None:
        yield indented(write.text)
    if write.run_id is not None:
        ids = [write.run_id, write.step_id, f"{write.tool} in {write.call_message_id}" if write.tool else None]
        yield ids_view(ids)
    yield from (_message_line(message) for message in write.messages)


def _answer_view(origin: AnswerOrigin) -> Iterator[RenderableType]:
    yield Text.assemble(("answer", "bold cyan"), f"  {visible(origin.model)}  {local_time(origin.at)}")
    if origin.model_reason:
        yield Text(f"  on this model: {visible(origin.model_reason)}", style="dim")
    yield ids_view((origin.run_id, origin.step_id, origin.message_id))
    yield indented(origin.text)
    if origin.problem is not None:
        yield Text(f"Its request can't be built again: {visible(origin.problem)}", style="yellow")
        return
    yield Text("In its request:", style="bold")
    for block in origin.blocks:
        state = "in the prompt" if block.change is None else f"{block.change} by {block.message_id}"
        yield line_view(f"block {block.label}, version {block.version}, {state}", block.block_id, block.text)
    for summary in origin.summaries:
        yield line_view(f"summary of {plural(summary.message_count, 'message')}", summary.handle, summary.text)
    for recalled in origin.recalled:
        yield line_view(f"recalled {recalled.kind}, score {recalled.score:.2f}", recalled.id, recalled.text)
    for search in origin.searches:
        yield line_view(f"result of {search.tool} {fold(search.arguments, 60)}", search.message_id, search.text)
    yield from (_message_line(message) for message in origin.messages if message.kind != "summary")


def _message_line(message: MessageText) -> RenderableType:
    return line_view(
        f"{message.kind if message.kind != 'message' else message.role} {message.name or ''}", message.id, message.text
    )
