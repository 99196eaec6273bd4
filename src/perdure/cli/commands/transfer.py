"""`perdure archive export`, `perdure archive import` and `perdure conversation import`: memory as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Annotated

import typer

from perdure.cli.run import agent_option, argument, command, flag, for_work, option

if for_work(__name__):
    from perdure.cli import work
    from perdure.cli.chat.agent_choice import chat_command
    from perdure.cli.commands.conversations import conversation_named
    from perdure.cli.views.view import View, plural
    from perdure.core.errors import InvalidInput
    from perdure.domain.conversations.importing import ImportedMessage, imported_message
    from perdure.library.transfer import check_lines
    from perdure.settings import Settings

NAMES_MAX = 3


@command("archive export", json=False)
async def export_archives(
    view: View,
    names: Annotated[list[str], argument("The archive, by name or id, and the file (- is stdout).", "[ARCHIVE] FILE")],
    every: Annotated[bool, flag("--all", "All archives, into one file.")] = False,
    overwrite: Annotated[bool, flag("--overwrite", "Replace the file if it is there.")] = False,
) -> None:
    """Write an archive as lines of JSON."""
    if len(names) != 2 - every:
        raise typer.BadParameter("write `perdure archive export ARCHIVE FILE`, or `perdure archive export --all FILE`")
    file = names[-1]
    async with work.open_store(view, empty="There is nothing to export: there is no data folder yet.") as perdure:
        archives = await work.load_all(perdure.archives.list) if every else [await perdure.archives.get(names[0])]
        total = sum(archive.info.passage_count for archive in archives)
        target = nullcontext(view.print) if file == work.STDIN else work.output_lines(file, overwrite=overwrite)
        with work.progress_bar() as progress, target as write:
            done = 0
            for archive in archives:
                first = True  # the archive itself, before its passages
                async for line in perdure.transfer.export_archive(archive.id):
                    write(line)
                    done += not first
                    first = False
                    progress("exporting", done, total)
        count = f"{plural(len(archives), 'archive')} with {plural(total, 'passage')}"
        hint = (
            ""
            if file == work.STDIN
            else f" in {file}; `perdure archive import {file}` reads them again, here or elsewhere"
        )
        view.hint(f"Exported {count}{hint}.")


@command("archive import", json=False)
async def import_archives(
    view: View,
    file: Annotated[str, argument("A file of `perdure archive export`; - is stdin.", "FILE")],
    into: Annotated[
        str | None, option("Put everything into this one; by default each into its own.", "ARCHIVE")
    ] = None,
    agent: Annotated[str | None, agent_option("Let this agent search them.")] = None,
) -> None:
    """Read archives from lines of JSON. Passages that are there already are skipped."""
    with closing(work.InputLines(file)) as lines:
        total = check_lines(lines, headless=into is not None)
        async with work.open_store(view) as perdure:
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
            names = ", ".join(repr(archive.name) for archive in counts.archives[:NAMES_MAX]) or "nothing"
            if len(counts.archives) > NAMES_MAX:
                names += f" and {len(counts.archives) - NAMES_MAX:,} more"
            passages = plural(counts.imported, "passage")
            view.hint(f"Imported {passages} into {names}{_skipped_text(counts.skipped)}. {hint}")


@command("conversation import", json=False)
async def import_messages(
    view: View,
    agent: Annotated[str, argument("Whose history, by name or id.", "AGENT")],
    file: Annotated[str, argument("One JSON object a line, oldest first; - is stdin.", "FILE")],
    conversation: Annotated[str | None, option("Where they go, a number or id: `new` creates one.", "NUMBER")] = None,
) -> None:
    """Add messages from elsewhere to the history of an agent.

    Each line has "role" (user, assistant or system), "text" and "occurred_at" (with a zone), and may have "name" (who
    spoke) and "id". What is there already is skipped.
    """
    limit_chars = Settings.from_environment().message_limit_chars
    with closing(work.InputLines(file)) as lines:
        total = sum(1 for _ in _parse_messages(lines, limit_chars))
        async with work.named_agent(view, agent, change=True) as (perdure, target):
            if conversation == "new":
                into = await target.new_conversation()
            else:
                into = await conversation_named(target, conversation or "default")
            with work.progress_bar() as progress:
                counts = await perdure.agent_of(target.id).import_messages(
                    _parse_messages(lines, limit_chars),
                    conversation=into.id,
                    checked=True,
                    progress=lambda done: progress("importing", done, total),
                )
            if counts.out_of_order:
                older = f"{counts.out_of_order:,} of them are older than a message above them"
                view.note(f"{older}; the order is the file's.")
            if counts.hint:
                view.note(f"{counts.hint}: `--conversation new`.")
            messages = plural(counts.imported, "message")
            view.hint(
                f"Imported {messages} into {counts.conversation_id}{_skipped_text(counts.skipped)}."
                f" `{chat_command(target)}` goes on from there; `perdure search TEXT` finds them."
            )


def _skipped_text(count: int) -> str:
    """How many of the lines were there already; empty for none."""
    return f", {count:,} {'was' if count == 1 else 'were'} there already" if count else ""


def _parse_messages(lines: Iterable[str], limit_chars: int) -> Iterator[ImportedMessage]:
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
