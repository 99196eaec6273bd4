"""`perdure export`, `perdure import` and `perdure import-messages`: memory as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext

from perdure.cli.chat.agent_choice import chat_command
from perdure.cli.lines import STDIN, InputLines, output_lines
from perdure.cli.open_store import Output, with_store
from perdure.cli.pages import load_archives
from perdure.cli.progress import progress_bar
from perdure.cli.views.fold import plural
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import ConversationId
from perdure.domain.conversations.importing import ImportedMessage, imported_message
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.transfer import check_lines
from perdure.settings import Settings

NAMES_MAX = 3


async def export_archives(*, name: str | None, file: str, overwrite: bool) -> int:
    """Write an archive, or without a name all of them, to a file of lines; `-` is stdout."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        archives = [await perdure.archives.get(name)] if name is not None else await load_archives(perdure)
        total = sum(archive.info.passage_count for archive in archives)
        target = nullcontext(output.print) if file == STDIN else output_lines(file, overwrite=overwrite)
        with progress_bar() as progress, target as write:
            done = 0
            for archive in archives:
                first = True  # the archive itself, before its passages
                async for line in perdure.services.transfer.export_archive(archive.id):
                    write(line)
                    done += not first
                    first = False
                    progress("exporting", done, total)
        count = f"{plural(len(archives), 'archive')} with {plural(total, 'passage')}"
        hint = "" if file == STDIN else f" in {file}; `perdure import {file}` reads them again, here or elsewhere"
        output.view.hint(f"Exported {count}{hint}.")
        return 0

    return await with_store(output, work, empty="There is nothing to export: there is no data folder yet.")


async def import_archives(*, file: str, into: str | None, agent: str | None) -> int:
    """Read archives from a file of lines; every line is checked before the first passage is stored."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        reader = None if agent is None else await perdure.agent(agent)
        target = None if into is None else (await perdure.archives.get(into)).id
        with progress_bar() as progress:
            counts = await perdure.services.transfer.import_archives(
                lines, into=target, progress=lambda done: progress("importing", done, total)
            )
        hint = (
            "`perdure search TEXT --archive NAME` looks into one; `--agent AGENT` lets an agent find what is in them."
        )
        if reader is not None:
            for archive in counts.archives:
                await reader.archives.attach(archive.id)
            hint = f"`{chat_command(reader)}` asks an agent that finds them now."
        names = ", ".join(repr(archive.name) for archive in counts.archives[:NAMES_MAX]) or "nothing"
        if len(counts.archives) > NAMES_MAX:
            names += f" and {len(counts.archives) - NAMES_MAX:,} more"
        imported = f"{plural(counts.imported, 'passage')} into {names}{_skipped(counts.skipped)}"
        output.view.hint(f"Imported {imported}. {hint}")
        return 0

    try:
        with closing(InputLines(file)) as lines:
            total = check_lines(lines, headless=into is not None)
            return await with_store(output, work)
    except InvalidInput as error:
        output.view.error(error)
        return 1


async def import_messages(*, agent: str, file: str, conversation: str | None) -> int:
    """Add a file's messages to an agent's history; every line is checked before the first message is stored."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        target = await perdure.agent(agent)
        if conversation == "new":
            into = await target.new_conversation()
        else:
            into = await target.find_conversation(None if conversation is None else ConversationId(conversation))
        with progress_bar() as progress:
            counts = await perdure.services.messages.import_messages(
                target.id,
                _messages(lines, limit_chars),
                conversation=into.id,
                checked=True,
                progress=lambda done: progress("importing", done, total),
            )
        if counts.out_of_order:
            output.view.note(
                f"{counts.out_of_order:,} of them are older than a message above them; the order is the file's."
            )
        if counts.hint:
            output.view.note(f"{counts.hint}: `--conversation new`.")
        imported = f"{plural(counts.imported, 'message')} into {counts.conversation_id}{_skipped(counts.skipped)}"
        output.view.hint(
            f"Imported {imported}. `{chat_command(target)}` goes on from there; `perdure search TEXT` finds them."
        )
        return 0

    try:
        limit_chars = Settings.from_environment().message_limit_chars
        with closing(InputLines(file)) as lines:
            total = sum(1 for _ in _messages(lines, limit_chars))
            return await with_store(output, work, empty=NotFound("agent", agent, hint="there is none yet"))
    except InvalidInput as error:
        output.view.error(error)
        return 1


def _skipped(count: int) -> str:
    return f", {count:,} {'was' if count == 1 else 'were'} there already" if count else ""


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
