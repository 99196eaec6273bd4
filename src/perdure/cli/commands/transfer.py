"""`perdure export`, `perdure import` and `perdure import-messages`: memory as lines of JSON, out of a store and into
one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import closing

from perdure.cli.chat.agent_choice import go_on_with
from perdure.cli.lines import STDIN, InputLines, output_lines, progress_bar
from perdure.cli.open_store import Shown, with_store
from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.core.ids import ArchiveId, ConversationId
from perdure.domain.conversations.importing import ImportedMessage, imported_message
from perdure.library.archives import AsyncArchive
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.transfer import check_lines, export_lines, import_lines
from perdure.settings import Settings

__all__ = ["export_archives", "import_archives", "import_messages"]

PAGE = 100


async def export_archives(*, name: str | None, file: str, overwrite: bool) -> int:
    """Write an archive, or without a name all of them, into a file of lines; `-` is stdout."""
    shown = Shown(as_json=False)

    async def work(perdure: AsyncPerdure) -> int:
        chosen = [await perdure.archives.get(name)] if name is not None else await _all(perdure)
        total = sum(archive.info.passage_count for archive in chosen)
        with progress_bar("exporting", total, shown=shown.watched) as progress:
            if file == STDIN:
                async for number, line in _numbered(perdure, [archive.id for archive in chosen]):
                    shown.print(line)
                    progress(number)
            else:
                with output_lines(file, overwrite=overwrite) as write:
                    async for number, line in _numbered(perdure, [archive.id for archive in chosen]):
                        write(line)
                        progress(number)
        what = f"{len(chosen):,} archive{'s' * (len(chosen) != 1)} with {total:,} passage{'s' * (total != 1)}"
        then = "" if file == STDIN else f" in {file}; `perdure import {file}` reads them again, here or elsewhere"
        shown.view.hint(f"Exported {what}{then}.")
        return 0

    return await with_store(shown, work, empty="There is nothing to export: there is no data folder yet.")


async def import_archives(*, file: str, into: str | None, agent: str | None) -> int:
    """Read a file of lines; all of it is looked at before the first passage is stored."""
    shown = Shown(as_json=False)
    try:
        with closing(InputLines(file)) as lines:
            total = check_lines(lines, headless=into is not None)
            async with await AsyncPerdure.open(settings=Settings.from_environment()) as perdure:
                reader = None if agent is None else await perdure.agent(agent)
                target = None if into is None else (await perdure.archives.get(into)).id
                with progress_bar("importing", total, shown=shown.watched) as progress:
                    came = await import_lines(perdure.app, lines, into=target, progress=progress)
                known: str | None = None
                if reader is not None:
                    known = go_on_with(reader)
                    for archive in came.archives:
                        await reader.archives.attach(archive.id)
    except PerdureError as error:
        shown.view.error(error)
        return 1
    names = ", ".join(repr(archive.name) for archive in came.archives[:3]) or "nothing"
    more = f" and {len(came.archives) - 3:,} more" if len(came.archives) > 3 else ""
    there = _there(came.skipped)
    then = "`perdure search TEXT --archive NAME` looks into one; `--agent AGENT` lets an agent find what is in them."
    if known is not None:
        then = f"`{known}` asks an agent that finds them now."
    shown.view.hint(f"Imported {came.imported:,} passage{'s' * (came.imported != 1)} into {names}{more}{there}. {then}")
    return 0


async def import_messages(*, agent: str, file: str, conversation: str | None) -> int:
    """Put a file's messages into an agent's history; all of it is looked at before the first is stored."""
    shown = Shown(as_json=False)
    try:
        with closing(InputLines(file)) as lines:
            settings = Settings.from_environment()
            total = sum(1 for _ in _messages(lines, settings.message_limit_chars))
            if not settings.store_path.exists():
                raise NotFound("agent", agent, hint="there is none yet")
            async with await AsyncPerdure.open(settings=settings) as perdure:
                found = await perdure.agent(agent)
                if conversation == "new":
                    line = await found.new_conversation()
                else:
                    named = None if conversation is None else ConversationId(conversation)
                    line = await found.find_conversation(named)
                messages = _messages(lines, settings.message_limit_chars)
                with progress_bar("importing", total, shown=shown.watched) as progress:
                    came = await perdure.services.messages.import_messages(
                        found.id, messages, conversation=line.id, checked=True, progress=progress
                    )
                go_on = go_on_with(found)
    except PerdureError as error:
        shown.view.error(error)
        return 1
    if came.out_of_order:
        shown.view.note(
            f"{came.out_of_order:,} of them were said before one that stands in front of them; the order is the file's."
        )
    if came.hint:
        shown.view.note(f"{came.hint}: `--conversation new`.")
    there = _there(came.skipped)
    shown.view.hint(
        f"Imported {came.imported:,} message{'s' * (came.imported != 1)} into {came.conversation_id}{there}."
        f" `{go_on}` goes on from there; `perdure search TEXT` finds them."
    )
    return 0


def _there(skipped: int) -> str:
    return f", {skipped:,} {'was' if skipped == 1 else 'were'} there already" if skipped else ""


def _messages(lines: Iterable[str], limit_chars: int) -> Iterator[ImportedMessage]:
    """The messages of a file. Raises: InvalidInput, naming the line, from 1."""
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            yield imported_message(json.loads(text), limit_chars=limit_chars)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"line {number}: it is no JSON ({error})") from error


async def _all(perdure: AsyncPerdure) -> list[AsyncArchive]:
    found: list[AsyncArchive] = []
    after: ArchiveId | None = None
    while page := await perdure.archives.list(limit=PAGE, after=after):
        found += page
        after = page[-1].id
    return found


async def _numbered(perdure: AsyncPerdure, archive_ids: list[ArchiveId]) -> AsyncIterator[tuple[int, str]]:
    """How many passages came so far, and the line."""
    number = 0
    for archive_id in archive_ids:
        first = True
        async for line in export_lines(perdure.app, archive_id):
            number += not first
            first = False
            yield number, line
