"""`perdure archive`: list archives with their agents; attach or delete one; show passages, bring them back, and write
and read them as lines of JSON; `perdure search`: what an agent finds, and why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import Annotated

from perdure.cli.commands.run import LastAgent, Limit, Yes, agent_option, argument, command, flag, for_work, option
from perdure.cli.session.needs import NO_STORE

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.commands.agents import skipped_text
    from perdure.cli.session import work
    from perdure.cli.session.agent_choice import chat_command, shell_word
    from perdure.cli.views.hits import FeatureHits, SearchOptions, search_more
    from perdure.cli.views.json import fields, message_shape, passage_shape, score_shape
    from perdure.cli.views.view import (
        Output,
        first_names,
        fold,
        local_time,
        new_table,
        place,
        plural,
        short_id,
        snippet,
        visible,
    )
    from perdure.core.errors import InvalidInput
    from perdure.core.ids import ArchiveId, PassageId
    from perdure.core.passages import PASSAGE_STATES, Archive, Passage, PassageState
    from perdure.library.memory.passages import passage_filter
    from perdure.library.parts.checks import Page
    from perdure.library.perdure import AsyncPerdure
    from perdure.library.transfer import check_lines
    from perdure.search.ranking.hits import Hits, MessageHit, PassageHit, SearchReport, Why
    from perdure.search.ranking.query import parse_time

ArchiveName = Annotated[str, argument("Name or id of the archive.", "ARCHIVE")]

NO_ARCHIVE = "There are no archives yet: an agent makes one when it puts something away; `perdure` starts the chat."
TEXT_CHARS = 200
NAMES_MAX = 3
BY_ITSELF = "its passages are listed by themselves: leave --agent out"
EXPORTS = "write `perdure archive export ARCHIVE FILE`, or `perdure archive export --all FILE`"
MemoryOwner = Annotated[str | None, agent_option("Whose memory, by name or id; by default the agent used last.")]
NO_TEXT = "There is nothing to search yet; `perdure` starts the chat."


@command("archive list", none=NO_ARCHIVE)
async def list_archives(view: Output, perdure: AsyncPerdure) -> None:
    """List the archives, and which agents have them."""
    agents = await _agents_by_archive(perdure)
    infos = [archive.info for archive in await work.load_all(perdure.archives.list)]
    styles = {"name": "bold", "id": "dim"}
    table = new_table("name", "id", "passages", "agents", "changed", right=("passages",), styles=styles)
    for info in infos:
        names = visible(", ".join(agents[info.id])) or "-"
        table.add_row(visible(info.name), info.id, f"{info.passage_count:,}", names, local_time(info.updated_at))
    view.show([_archive_shape(info, agents[info.id]) for info in infos], *([table] if infos else []))
    more = (
        "`perdure search TEXT --archive NAME` looks into one; `perdure archive export NAME FILE.jsonl` writes it out."
    )
    view.hint(more if infos else NO_ARCHIVE)


@command(
    "archive show", lacks=NO_STORE, refuses=[(lambda given: given["agent"] and given["archive"], BY_ITSELF, "ARCHIVE")]
)
async def list_passages(
    view: Output,
    perdure: AsyncPerdure,
    archive: Annotated[
        str | None, argument("Name or id of the archive; by default all of the agent.", "[ARCHIVE]")
    ] = None,
    agent: Annotated[str | None, agent_option("Whose, by name or id; by default the agent used last.")] = None,
    state: Annotated[str | None, option("Only those that are `active`, `faded` or `archived`.", "STATE")] = None,
    limit: Limit = 50,
) -> None:
    """List passages with their states, newest first."""
    where, page = passage_filter(states=passage_states(state)), Page(limit, ascending=False)
    if archive is not None:
        passages = await (await perdure.archives.get(archive)).list_passages(page, where=where)
    else:
        passages = await (await work.get_agent(view, perdure, agent)).list_passages(page, where=where)
    _show_passages(view, passages)
    view.hint("`perdure archive restore ID` brings one back that has faded; `perdure fact tidy` lets them fade.")


@command("archive restore", finds="passage")
async def restore(
    view: Output,
    perdure: AsyncPerdure,
    passages: Annotated[list[str], argument("Ids of passages, or their beginnings.", "ID...")],
) -> None:
    """Bring back passages that have faded or are archived."""
    ids = [PassageId(await perdure.ids.find(start, "passage")) for start in passages]
    _show_passages(view, [await perdure.archives.restore_passage(one) for one in ids])
    view.hint("Searches and automatic recall find them again.")


@command("archive attach", finds="archive", change=True)
async def attach(view: Output, perdure: AsyncPerdure, archive: ArchiveName, agent: LastAgent) -> None:
    """Let an agent search an archive."""
    target = await perdure.archives.get(archive)
    await agent.archives.attach(target.id)
    view.show(_archive_shape(target.info, (await _agents_by_archive(perdure))[target.id]))
    view.hint(f"{agent.name} finds what is in {target.name}: `{chat_command(agent)}`.")


@command("archive detach", finds="archive", change=True)
async def detach(view: Output, perdure: AsyncPerdure, archive: ArchiveName, agent: LastAgent) -> None:
    """Detach an archive from an agent."""
    target = await perdure.archives.get(archive)
    await agent.archives.detach(target.id)
    view.show(_archive_shape(target.info, (await _agents_by_archive(perdure))[target.id]))
    view.hint(f"{agent.name} has {target.name} no longer; the archive itself stays.")


@command("archive delete", finds="archive")
async def delete(view: Output, perdure: AsyncPerdure, archive: ArchiveName, yes: Yes = False) -> None:
    """Delete an archive with its passages, for good."""
    target = await perdure.archives.get(archive)
    agents = (await _agents_by_archive(perdure))[target.id]
    what = f"archive {visible(target.name)!r} with {plural(target.info.passage_count, 'passage')}"
    also = f"also for {visible(', '.join(agents))}" if agents else ""
    with work.deleting(view, what, also, yes=yes, id_=target.id):
        await perdure.archives.delete(target.id)


async def _agents_by_archive(perdure: AsyncPerdure) -> defaultdict[ArchiveId, list[str]]:
    """Id of an archive -> names of the agents that have it."""
    names: defaultdict[ArchiveId, list[str]] = defaultdict(list)
    for agent in await work.load_all(perdure.agents):
        for archive in await agent.archives.list():
            names[archive.id].append(agent.name)
    return names


def _archive_shape(info: Archive, agents: Sequence[str]) -> dict[str, object]:
    shape = fields(info, "name", "id", "description", passages="passage_count", changed_at="updated_at")
    return shape | {"agents": list(agents)}


def _show_passages(view: Output, passages: Sequence[Passage]) -> None:
    """Show passages with their ids, which the other commands take, and their states."""
    table = new_table("id", "text", "when", "state", styles={"id": "dim", "text": "bold"})
    for one in passages:
        table.add_row(short_id(one.id), visible(fold(one.text, TEXT_CHARS)), local_time(one.occurred_at), one.state)
    view.show([passage_shape(passage) for passage in passages], table if passages else Text("No passages."))


@command(
    "archive export",
    json=False,
    none="There is nothing to export: there is no data folder yet.",
    refuses=[(lambda given: len(given["names"]) != 2 - given["every"], EXPORTS, None)],
)
async def export_archives(
    view: Output,
    perdure: AsyncPerdure,
    names: Annotated[list[str], argument("The archive, by name or id, and the file (- is stdout).", "[ARCHIVE] FILE")],
    every: Annotated[bool, flag("--all", "All archives, into one file.")] = False,
    overwrite: Annotated[bool, flag("--overwrite", "Replace the file if it is there.")] = False,
) -> None:
    """Write an archive as lines of JSON."""
    file = names[-1]
    archives = await work.load_all(perdure.archives.list) if every else [await perdure.archives.get(names[0])]
    total, done = sum(archive.info.passage_count for archive in archives), 0
    with work.progress_bar() as progress, work.output_lines(view, file, overwrite=overwrite) as write:
        for archive in archives:
            first = True  # the archive itself, before its passages
            async for line in perdure.transfer.export_archive(archive.id):
                write(line)
                done += not first
                first = False
                progress("exporting", done, total)
    where = f" in {file}; `perdure archive import {shell_word(file)}` reads them again, here or elsewhere"
    count = f"{plural(len(archives), 'archive')} with {plural(total, 'passage')}"
    view.hint(f"Exported {count}{'' if file == work.STDIN else where}.")


@command("archive import")
async def import_archives(
    view: Output,
    file: Annotated[str, argument("A file written by `perdure archive export`; - is stdin.", "FILE")],
    into: Annotated[
        str | None, option("Put everything into this one; by default each into its own.", "ARCHIVE")
    ] = None,
    agent: Annotated[str | None, agent_option("Let this agent search them.")] = None,
) -> None:
    """Read archives from lines of JSON. Passages that are already there are skipped."""
    with closing(work.InputLines(file)) as lines:
        total = check_lines(lines, headless=into is not None)
        async with work.open_store() as perdure:
            reader = None if agent is None else await work.get_agent(view, perdure, agent, change=True)
            target = None if into is None else (await perdure.archives.get(into)).id
            with work.progress_bar() as progress:
                counts = await perdure.transfer.import_archives(
                    lines, into=target, progress=lambda done: progress("importing", done, total)
                )
            hint = "`perdure search TEXT --archive NAME` looks into one;"
            hint += " `--agent AGENT` lets an agent find what is in them."
            if reader is not None:
                for archive in counts.archives:
                    await reader.archives.attach(archive.id)
                hint = f"`{chat_command(reader)}` asks an agent that finds them now."
            names = first_names([repr(archive.name) for archive in counts.archives], NAMES_MAX) or "nothing"
            passages = plural(counts.imported, "passage")
            archives = [fields(archive, "id", "name") for archive in counts.archives]
            view.show(fields(counts, "imported", "skipped") | {"archives": archives})
            view.hint(f"Imported {passages} into {names}{skipped_text(counts.skipped)}. {hint}")


@command(
    "search",
    none=NO_TEXT,
    refuses=[
        (lambda given: given["agent"] and given["archive"], "it is searched by itself: leave --agent out", "--archive")
    ],
)
async def search(
    view: Output,
    perdure: AsyncPerdure,
    text: Annotated[str, argument("What to search for.", "TEXT")],
    agent: MemoryOwner = None,
    archive: Annotated[str | None, option("Only this archive, by name or id.", "ARCHIVE")] = None,
    tags: Annotated[
        list[str] | None, option("Only passages with this tag; repeat it for any of several.", "TAG", name="--tag")
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
    if not text.strip():
        raise InvalidInput("there is nothing to look for: perdure search TEXT")
    states = passage_states(state)
    where = passage_filter(tags=tags or (), states=states)
    messages: Hits[MessageHit] | None = None
    searching = SearchOptions(text, tags=tags or (), states=states, limit=limit, explain=why)
    if archive is not None:
        target = await perdure.archives.get(archive)
        passages = await perdure.search.search_passages(
            text, where, archive_id=target.id, since=since, until=until, limit=limit, explain=why
        )
        hint = f"`perdure archive export {target.id} FILE.jsonl` writes the archive out."
    else:
        owner = await work.get_agent(view, perdure, agent)
        if not tags and not states:  # messages have none
            messages = await owner.search(text, since=since, until=until, limit=limit, explain=why)
        zone = owner.info.timezone
        first, last = parse_time("since", since, timezone=zone), parse_time("until", until, timezone=zone, end=True)
        searching = replace(searching, agent=owner, since=first, until=last)
        passages = await owner.search_passages(text, where, since=since, until=until, limit=limit, explain=why)
        hint = f"`{chat_command(owner)}` asks the agent about them."
    show_hits(view, text, messages, passages, await search_more(searching), why=why)
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
    view: Output,
    query: str,
    messages: Hits[MessageHit] | None,
    passages: Hits[PassageHit],
    more: Sequence[FeatureHits],
    *,
    why: bool = False,
) -> None:
    """Show what a search found, best first.

    Args:
        why: tell people why each was found, and how it was searched.
    """
    shape = {
        "query": query,
        "messages": [message_shape(hit.message) | score_shape(hit) for hit in messages or ()],
        "passages": [passage_shape(hit.passage) | score_shape(hit) for hit in passages],
        **{one.name: one.shapes for one in more},
        "ran": {"messages": None if messages is None else asdict(messages.ran), "passages": asdict(passages.ran)}
        | {one.name: asdict(one.ran) for one in more if one.ran is not None},
    }
    view.show(shape, *_lines(query, messages, passages, more, why=why))


def _lines(
    query: str, messages: Hits[MessageHit] | None, passages: Hits[PassageHit], more: Sequence[FeatureHits], *, why: bool
) -> Iterator[Text]:
    """Each hit on a line: when, from where, and the part of its text that matches."""
    rows = [
        (hit.message.occurred_at, hit.message.name or hit.message.role, hit.message.text, hit.why)
        for hit in messages or ()
    ]
    rows += [(hit.passage.occurred_at, place(hit.passage), hit.passage.text, hit.why) for hit in passages]
    rows += [row for one in more for row in one.rows]
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
        reports = {"messages": None if messages is None else messages.ran, "archive": passages.ran}
        for kind, ran in (reports | {one.name: one.ran for one in more if one.rows}).items():
            if ran is not None:
                yield Text(f"{kind}: {_arms(ran)}", style="dim")


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
