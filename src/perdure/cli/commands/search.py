"""`perdure search`: what an agent finds, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from perdure.cli.run import agent_option, argument, command, flag, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.chat.agent_choice import chat_command
    from perdure.cli.views.facts import fact_shape
    from perdure.cli.views.json import message_shape, passage_shape
    from perdure.cli.views.view import View, local_time, place, snippet, visible
    from perdure.cli.work import get_agent, open_store
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.passages import PASSAGE_STATES, PassageState
    from perdure.core.text.reprs import plural
    from perdure.library.passages import passage_filter
    from perdure.search.hits import FactHit, Hits, MessageHit, PassageHit, SearchReport, Why
    from perdure.search.query import parse_time

MemoryOwner = Annotated[str | None, agent_option("Whose memory, by name or id; by default the agent used last.")]

FACTS_MAX = 5

NO_TEXT = "There is nothing to search yet; `perdure` starts the chat."


@command("search")
async def search(
    view: View,
    text: Annotated[str, argument("What to search for.", "TEXT")],
    agent: MemoryOwner = None,
    archive: Annotated[str | None, option("Only this archive, by name or id.", "ARCHIVE")] = None,
    tags: Annotated[
        list[str] | None, option("Only passages with it; several: with any of them.", "TAG", name="--tag")
    ] = None,
    since: Annotated[str | None, option("Only from this date on, such as 2026-11-20.", "DATE")] = None,
    until: Annotated[str | None, option("Only up to this date, that day included.", "DATE")] = None,
    state: Annotated[
        str | None, option("Only passages and facts that are `active`, `faded` or `archived`; or `all`.", "STATE")
    ] = None,
    limit: Annotated[int, option("How many of each kind.", min=1, max=1_000)] = 10,
    why: Annotated[bool, flag("--why", "Show why each was found, and what ran.")] = False,
) -> None:
    """Search messages and archives."""
    if agent is not None and archive is not None:
        raise typer.BadParameter("it is searched by itself: leave --agent out", param_hint="--archive")
    async with open_store(view, empty=NO_TEXT) as perdure:
        if not text.strip():
            raise InvalidInput("there is nothing to look for: perdure search TEXT")
        states = passage_states(state)
        where = passage_filter(tags=tags or (), states=states)
        messages: Hits[MessageHit] | None = None
        passages: Hits[PassageHit]
        facts: Hits[FactHit] | None = None
        if archive is not None:
            target = await perdure.archives.get(archive)
            passages = await perdure.search.search_passages(
                text, where, archive_id=target.id, since=since, until=until, limit=limit, explain=why
            )
            hint = f"`perdure archive export {target.id} FILE.jsonl` writes the archive out."
        else:
            owner = await perdure.last_agent() if agent is None else await get_agent(view, perdure, agent)
            if owner is None:
                raise NotFound("agent", agent or "", hint=NO_TEXT)
            if not tags and not states:  # messages have none
                messages = await owner.search(text, since=since, until=until, limit=limit, explain=why)
            if not tags:  # facts have none
                zone = owner.info.timezone
                facts = await owner.facts.search(
                    text,
                    states=states,
                    limit=min(limit, FACTS_MAX),
                    explain=why,
                    since=parse_time(since, timezone=zone),
                    until=parse_time(until, timezone=zone, end=True),
                )
            passages = await owner.search_passages(text, where, since=since, until=until, limit=limit, explain=why)
            hint = f"`{chat_command(owner)}` asks the agent about them."
        show_hits(view, text, messages, passages, facts, why=why)
        view.hint(hint if why else f"{hint} --why tells why each was found.")


def passage_states(state: str | None) -> Sequence[PassageState]:
    """The states that an option names; none if it is not given. Raises: InvalidInput."""
    if state is None:
        return ()
    found = [one for one in PASSAGE_STATES if state in (one, "all")]
    if not found:
        raise InvalidInput(f"--state is {state!r:.40}: write {', '.join(PASSAGE_STATES)} or all")
    return found


def show_hits(
    view: View,
    query: str,
    messages: Hits[MessageHit] | None,
    passages: Hits[PassageHit],
    facts: Hits[FactHit] | None = None,
    *,
    why: bool = False,
) -> None:
    """Show what a search found, best first.

    Args:
        why: tell people why each was found, and how it was searched.
    """
    shape = {
        "query": query,
        "messages": [message_shape(hit.message) | _score_shape(hit) for hit in messages or ()],
        "passages": [passage_shape(hit.passage) | _score_shape(hit) for hit in passages],
        "facts": [fact_shape(hit, with_score=True) for hit in facts or ()],
        "ran": {"messages": None if messages is None else asdict(messages.ran), "passages": asdict(passages.ran)}
        | ({} if facts is None else {"facts": asdict(facts.ran)}),
    }
    view.show(shape, *_lines(query, messages, passages, facts, why=why))


def _score_shape(hit: MessageHit | PassageHit) -> dict[str, Any]:
    """The score of a hit for programs, and why it was found where that is known."""
    return {"score": hit.score} | ({"why": asdict(hit.why)} if hit.why is not None else {})


def _lines(
    query: str, messages: Hits[MessageHit] | None, passages: Hits[PassageHit], facts: Hits[FactHit] | None, *, why: bool
) -> Iterator[Text]:
    """Each hit on a line: when, from where, and the part of its text that matches."""
    rows = [
        (hit.message.occurred_at, hit.message.name or hit.message.role, hit.message.text, hit.why)
        for hit in messages or ()
    ]
    rows += [(hit.passage.occurred_at, place(hit.passage), hit.passage.text, hit.why) for hit in passages]
    rows += [(hit.fact.valid_at or hit.fact.created_at, "fact", hit.fact.text, hit.why) for hit in facts or ()]
    if not rows:
        yield Text(f"Nothing found for {visible(query)!r}.")
    width = max((len(visible(source)) for _, source, _, _ in rows), default=0)
    for occurred_at, source, content, reason in rows:
        line, spans = snippet(content, query)
        body = Text(line)
        for start, end in spans:
            body.stylize("bold yellow", start, end)
        yield Text.assemble((f"{local_time(occurred_at)}  ", "dim"), (f"{visible(source):<{width}}  ", "cyan"), body)
        if reason is not None:
            yield Text(f"    {_sum_of(reason)}", style="dim")
    if why:
        for kind, hits in (("messages", messages), ("archive", passages), ("facts", facts or None)):
            if hits is not None:
                yield Text(f"{kind}: {_arms(hits.ran)}", style="dim")


def _sum_of(why: Why) -> str:
    """A score with the parts that it is the sum of, the largest first."""
    parts = sorted(why.parts.items(), key=lambda part: -abs(part[1]))
    summands = " + ".join(f"{name} {value:.2f}" for name, value in parts)
    text = f"{why.score:.2f} = {summands}" if parts else "the only one"
    if why.cosine is not None:
        text += f"; cosine {why.cosine:.2f}"
    if why.facts:
        text += f"; words of {plural(len(why.facts), 'fact')}"
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
