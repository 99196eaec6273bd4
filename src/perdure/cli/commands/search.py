"""`perdure search`: what an agent finds, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from perdure.cli.chat.agent_choice import chat_command
from perdure.cli.open_store import Output, with_store
from perdure.cli.views.fold import local_time, place, snippet, visible
from perdure.cli.views.json import message_shape, passage_shape
from perdure.core.errors import InvalidInput, NotFound
from perdure.library.perdure import AsyncPerdure
from perdure.search.hits import Hits, MessageHit, PassageHit, SearchReport, Why

if TYPE_CHECKING:
    from rich.console import RenderableType

NO_TEXT = "There is nothing to search yet; `perdure` starts the chat."


async def search(
    *,
    text: str,
    agent: str | None,
    archive: str | None,
    tags: Sequence[str],
    since: str | None,
    until: str | None,
    limit: int,
    why: bool,
    as_json: bool,
) -> int:
    """Search the history, archives and files of an agent, or one archive; print the hits and return the exit code."""
    output = Output(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        if not text.strip():
            raise InvalidInput("there is nothing to look for: perdure search TEXT")
        service = perdure.services.search
        messages: Hits[MessageHit] | None = None
        passages: Hits[PassageHit]
        if archive is not None:
            target = await perdure.archives.get(archive)
            passages = await service.passages(
                text, archive_id=target.id, tags=tags, since=since, until=until, limit=limit, explain=why
            )
            hint = f"`perdure export {target.id} FILE.jsonl` writes the archive out."
        else:
            owner = await perdure.last_agent() if agent is None else await perdure.agent(agent)
            if owner is None:
                raise NotFound("agent", agent or "", hint=NO_TEXT)
            if not tags:  # messages have none
                messages = await service.messages_of_agent(
                    owner.id, text, since=since, until=until, limit=limit, explain=why
                )
            passages = await service.passages_of_agent(
                owner.id, text, tags=tags, since=since, until=until, limit=limit, explain=why, files=True
            )
            hint = f"`{chat_command(owner)}` asks the agent about them."
        if as_json:
            output.json(_shape(text, messages, passages))
            return 0
        output.terminal.show(*_lines(text, messages, passages, why=why))
        if not why:
            hint += " --why tells why each was found."
        output.view.hint(hint)
        return 0

    return await with_store(output, work, empty=NO_TEXT)


def _shape(text: str, messages: Hits[MessageHit] | None, passages: Hits[PassageHit]) -> dict[str, Any]:
    def scored(hit: MessageHit | PassageHit) -> dict[str, Any]:
        return {"score": hit.score} | ({"why": asdict(hit.why)} if hit.why is not None else {})

    return {
        "query": text,
        "messages": [message_shape(hit.message) | scored(hit) for hit in messages or ()],
        "passages": [passage_shape(hit.passage) | scored(hit) for hit in passages],
        "ran": {
            "messages": None if messages is None else asdict(messages.ran),
            "passages": asdict(passages.ran),
        },
    }


def _lines(
    text: str, messages: Hits[MessageHit] | None, passages: Hits[PassageHit], *, why: bool
) -> Iterator[RenderableType]:
    from rich.text import Text

    rows: list[tuple[str, str, str, Why | None]] = []
    for message, why_found in ((hit.message, hit.why) for hit in messages or ()):
        rows.append((local_time(message.occurred_at), message.name or message.role, message.text, why_found))
    for passage, why_found in ((hit.passage, hit.why) for hit in passages):
        rows.append((local_time(passage.occurred_at), place(passage), passage.text, why_found))
    if not rows:
        yield Text(f"Nothing found for {visible(text)!r}.")
    width = max((len(visible(source)) for _, source, _, _ in rows), default=0)
    for date, source, content, reason in rows:
        line, spans = snippet(content, text)
        body = Text(line)
        for start, end in spans:
            body.stylize("bold yellow", start, end)
        yield Text.assemble((f"{date}  ", "dim"), (f"{visible(source):<{width}}  ", "cyan"), body)
        if reason is not None:
            yield Text(f"    {_sum_of(reason)}", style="dim")
    if why:
        for kind, hits in (("messages", messages), ("archive", passages)):
            if hits is not None:
                yield Text(f"{kind}: {_arms(hits.ran)}", style="dim")


def _sum_of(why: Why) -> str:
    """A score with the parts that it is the sum of, the largest first."""
    parts = sorted(why.parts.items(), key=lambda part: -abs(part[1]))
    summands = " + ".join(f"{name} {value:.2f}" for name, value in parts)
    text = f"{why.score:.2f} = {summands}" if parts else "the only one"
    if why.cosine is not None:
        text += f"; cosine {why.cosine:.2f}"
    if why.same:
        text += f"; {len(why.same)} more say the same"
    return text


def _arms(ran: SearchReport) -> str:
    """Which ways of searching ran, over how many texts, and which did not."""
    text = f"searched by {' and '.join(ran.arms) or 'nothing'} in {ran.rows:,} texts"
    for arm, reason in ran.left_out.items():
        text += f"; not by {arm}: {reason}"
    if ran.spans:
        text += f"; times named: {', '.join(ran.spans)}"
    return visible(text)
