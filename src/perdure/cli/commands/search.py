"""`perdure search`: what an agent would find, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from perdure.cli.chat.agent_choice import go_on_with
from perdure.cli.open_store import Shown, with_store
from perdure.cli.views.fold import local_time, place, snippet, visible
from perdure.cli.views.json import message_shape, passage_shape
from perdure.core.errors import InvalidInput, NotFound
from perdure.library.perdure import AsyncPerdure
from perdure.search.hits import Hits, MessageHit, PassageHit, SearchReport, Why

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["search"]

NOTHING_YET = "There is nothing to search yet; `perdure` starts the chat."


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
    """Print what is found in the history, archives and files of an agent, or in an archive; the exit code."""
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        if not text.strip():
            raise InvalidInput("there is nothing to look for: perdure search TEXT")
        service = perdure.services.search
        messages: Hits[MessageHit] | None = None
        passages: Hits[PassageHit]
        if archive is not None:
            named = await perdure.archives.get(archive)
            passages = await service.passages(
                text, archive_id=named.id, tags=tags, since=since, until=until, limit=limit, explain=why
            )
            then = f"`perdure export {named.id} FILE.jsonl` writes the archive out."
        else:
            found = await perdure.last_agent() if agent is None else await perdure.agent(agent)
            if found is None:
                raise NotFound("agent", agent or "", hint=NOTHING_YET)
            if not tags:  # messages have none
                messages = await service.messages_of_agent(
                    found.id, text, since=since, until=until, limit=limit, explain=why
                )
            passages = await service.passages_of_agent(
                found.id, text, tags=tags, since=since, until=until, limit=limit, explain=why, files=True
            )
            then = f"`{go_on_with(found)}` asks the agent about them."
        if as_json:
            shown.json(_shape(text, messages, passages))
            return 0
        shown.terminal.show(*_lines(text, messages, passages, why=why))
        if not why:
            then += " --why tells why each was found."
        shown.view.hint(then)
        return 0

    return await with_store(shown, work, empty=NOTHING_YET)


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
    for hit in messages or ():
        said = hit.message
        rows.append((local_time(said.occurred_at), said.name or said.role, said.text, hit.why))
    for found in passages:
        kept = found.passage
        rows.append((local_time(kept.occurred_at), place(kept), kept.text, found.why))
    if not rows:
        yield Text(f"Nothing found for {visible(text)!r}.")
    width = max((len(visible(where)) for _, where, _, _ in rows), default=0)
    for date, where, content, reason in rows:
        line, spans = snippet(content, text)
        body = Text(line)
        for start, end in spans:
            body.stylize("bold yellow", start, end)
        yield Text.assemble((f"{date}  ", "dim"), (f"{visible(where):<{width}}  ", "cyan"), body)
        if reason is not None:
            yield Text(f"    {_because(reason)}", style="dim")
    if why:
        for what, hits in (("messages", messages), ("archive", passages)):
            if hits is not None:
                yield Text(f"{what}: {_ran(hits.ran)}", style="dim")


def _because(why: Why) -> str:
    """A score as the sum it is."""
    parts = sorted(why.parts.items(), key=lambda part: -abs(part[1]))
    told = (
        f"{why.score:.2f} = " + " + ".join(f"{name} {value:.2f}" for name, value in parts) if parts else "the only one"
    )
    if why.cosine is not None:
        told += f"; cosine {why.cosine:.2f}"
    if why.same:
        told += f"; {len(why.same)} more say the same"
    return told


def _ran(ran: SearchReport) -> str:
    told = f"searched by {' and '.join(ran.arms) or 'nothing'} in {ran.rows:,} texts"
    for arm, reason in ran.left_out.items():
        told += f"; not by {arm}: {reason}"
    if ran.spans:
        told += f"; times named: {', '.join(ran.spans)}"
    return visible(told)
