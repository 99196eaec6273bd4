"""`perdure backup`, `perdure restore` and `perdure migrate-db`; `perdure store`: damage, indexes that differ from the
texts, traces, parts of tables, and vectors.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from perdure.cli.run import Yes, agent_option, argument, command, flag, for_work, option

if for_work(__name__):
    import asyncio

    from rich.text import Text

    from perdure.app import accept_loss as accept_lost_log
    from perdure.app.copies import look_at_backup, same_address
    from perdure.app.copies import migrate_db as copy_database
    from perdure.app.copies import restore as restore_store
    from perdure.app.copies import split as split_store
    from perdure.cli.chat.agent_choice import shell_word
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import View, plural, visible
    from perdure.cli.work import confirm, get_agent, has_store, no_store, open_store, progress_bar
    from perdure.core.errors import PerdureError, StoreDamaged
    from perdure.core.text.addresses import check_store_address, is_postgres, without_password
    from perdure.library.perdure import AsyncPerdure
    from perdure.library.upkeep import Comparison
    from perdure.settings import Settings

KEY_HINT = "Secrets are encrypted in it; keep the key (secret.key or PERDURE_SECRET_KEY) apart from it."
_ADVICE = re.compile(r"; `perdure store verify` tells[^;]*$")
"""What an error says of this command, which ends with the same error."""
RESTORE = "What was damaged can't be made anew: restore a backup by `perdure restore FILE` (docs/operations.md)."


def _expanded(path: str) -> Path:
    return Path(path).expanduser()


@command("backup", lacks="nothing to back up")
async def backup(
    view: View, perdure: AsyncPerdure, path: Annotated[str, argument("The file to make.", "PATH")]
) -> None:
    """Copy the store as it is now to a new file, while agents work."""
    file = _expanded(path)
    with progress_bar() as progress:
        await perdure.upkeep.backup(file, lambda done, total: progress("copying", done, total))
    place = perdure.upkeep.place
    summary = look_at_backup(file)
    size = file.stat().st_size
    view.show(
        {"backup": str(file), "of": place, "bytes": size, "agents": summary.agents, "messages": summary.messages},
        f"{file}: {size:,} bytes, {plural(summary.agents, 'agent')}, {plural(summary.messages, 'message')}.",
    )
    view.hint(f"`perdure restore {shell_word(str(file))}` puts it in the place of the store. {KEY_HINT}")


@command("restore")
async def restore(
    view: View, path: Annotated[str, argument("A file that `perdure backup` has made.", "PATH")], yes: Yes = False
) -> None:
    """Put a backup in the place of the store. The old one is kept."""
    file, address = _expanded(path), Settings.from_environment().store_address
    summary = look_at_backup(file)
    place = without_password(address)
    what = f"{plural(summary.agents, 'agent')}, {plural(summary.messages, 'message')}, schema {summary.version}"
    view.print(f"{file}: {what}")
    confirm(view, f"Put it in the place of {place}? The old store is kept.", action="restore", yes=yes)
    with progress_bar() as progress:
        report = await restore_store(file, address, at=datetime.now(UTC), progress=progress)
    view.show(
        {"restored": str(file), "to": place, "rows": report.rows, "digest": report.digest, "kept": report.kept},
        f"{place} has the {plural(report.rows, 'row')} of the backup now (content hash {report.digest}).",
    )
    if not report.kept:
        view.hint("`perdure` goes on with it.")
    elif is_postgres(address):
        view.hint(f"The old tables are in the schema {report.kept}: drop it when you don't need them any more.")
    else:
        view.hint(f"The old store is {report.kept}: remove it when you don't need it any more.")


@command("migrate-db")
async def migrate_db(
    view: View,
    source: Annotated[str, argument("A file or postgresql://...", "FROM")],
    target: Annotated[str, argument("An empty database, or a file that is made.", "TO")],
) -> None:
    """Copy a store to another database, such as PostgreSQL. Killed, it goes on where it was."""
    check_store_address("FROM", source)
    check_store_address("TO", target)
    one, other = (address if is_postgres(address) else _expanded(address) for address in (source, target))
    began = time.monotonic()
    with progress_bar() as progress:
        report = await copy_database(one, other, at=datetime.now(UTC), progress=progress)
    seconds = max(time.monotonic() - began, 0.001)
    place = without_password(other)
    rate = f"{report.rows / seconds:,.0f} a second"
    view.show(
        {
            "from": without_password(one),
            "to": place,
            **fields(report, "rows", "tables", "digest", "resumed"),
            "seconds": round(seconds, 3),
        },
        f"{plural(report.rows, 'row')} of {plural(report.tables, 'table')} ({rate}); both sides have the content hash"
        f" {report.digest}.",
    )
    key = " Set PERDURE_SECRET_KEY to what secret.key holds." if is_postgres(other) and not is_postgres(one) else ""
    same = same_address(other, Settings.from_environment().store_address)
    use = "`perdure` uses it now." if same else f"Set PERDURE_STORE={shell_word(place)} to use it."
    view.hint(f"{use}{key} The old store is unchanged: keep it until you have looked at the new one.")


@command("store verify", json=False)
async def verify(
    view: View,
    repair: Annotated[bool, flag("--repair", "Rebuild indexes, vectors and counts that differ.")] = False,
    accept_loss: Annotated[bool, flag("--accept-loss", "Continue with the rest of a store whose log is gone.")] = False,
) -> int:
    """Look for damage, and compare the search indexes, vectors and counts with the stored texts.

    Exit code 1: something is damaged or differs, and was not repaired.
    """
    if accept_loss and (path := Settings.from_environment().store_path).exists():
        accept_lost_log(path)
    try:
        if not has_store(Settings.from_environment()):
            raise no_store("nothing to compare")
        async with open_store() as perdure:
            upkeep = perdure.upkeep
            if problems := await upkeep.find_damage():
                # Nothing in such a file can be trusted, so nothing else is compared.
                view.print(*(Text.assemble(("✗ ", "bold red"), visible(one)) for one in problems))
                view.print(Text("The file is damaged.", "bold red"))
                view.hint(RESTORE)
                return 1
            with progress_bar() as progress:
                comparison = await upkeep.compare(repair=repair, progress=progress)
            return _show_comparison(view, comparison)
    except StoreDamaged as error:
        raise StoreDamaged(_ADVICE.sub("", str(error))) from error


def _show_comparison(view: View, comparison: Comparison) -> int:
    """Print what differs, and return the exit code."""
    faults, hint = comparison.faults, view.hint
    rows = sum(owner.rows for owner in comparison.owners)
    view.print(Text(f"{rows:,} rows of {len(comparison.owners):,} agents and archives were compared."))
    counts: defaultdict[tuple[str, str, bool], int] = defaultdict(int)
    for fault in faults:
        counts[fault.owner_id, fault.text, fault.repaired] += fault.count
    for (owner_id, text, repaired), count in counts.items():
        sign, style = ("✓ repaired", "green") if repaired else ("✗", "bold red")
        view.print(Text.assemble((f"{sign} ", style), f"{owner_id}: {count:,} {text}"))
    if comparison.unfinished:
        view.print(Text("A full-text index is being made anew, and is not done.", "bold red"))
        hint("`perdure store verify --repair` goes on with it.")
        return 1
    if not faults:
        view.print(Text("All agrees.", style="green"))
    if comparison.without_checksum:
        older = f"{comparison.without_checksum:,} older rows have no checksum"
        hint(f"{older}: `perdure store verify --repair` gives them one.")
    if any(fault.kind == "damage" for fault in faults):
        hint(RESTORE)
    if any(not fault.repaired and fault.kind != "damage" for fault in faults):
        hint("`perdure store verify --repair` makes it anew from the texts. Nothing that was said is touched.")
    return int(any(not fault.repaired for fault in faults))


@command("store scrub", json=False, lacks="nothing to scrub")
async def scrub(view: View, perdure: AsyncPerdure) -> None:
    """Remove every trace of what was deleted from the indexes, the free space of the database and its log.

    The database is written anew, and others can't write meanwhile. Run it after deleting what nobody may find.
    """
    began = time.monotonic()
    with progress_bar() as progress:
        await perdure.upkeep.scrub(progress)
    view.print(f"Written anew in {time.monotonic() - began:.1f} s: nothing that was deleted is left in it.")
    view.hint("Backups and copies keep what was in the store when they were made.")


@command("store split", json=False)
async def split(view: View, parts: Annotated[int, option("How many parts of each table: 2 to 256.", "N")] = 16) -> None:
    """Split the tables of a store on PostgreSQL into hash partitions, by agent, block, archive or graph.

    Stop every process first. Each table is copied in a transaction of its own: stopped, the command goes on where it
    was. Only stores with hundreds of millions of rows gain from it.
    """
    address = Settings.from_environment().store_address
    with progress_bar() as progress:
        count = await split_store(address, parts, progress=progress)
    place = without_password(address)
    view.show(
        {"store": place, "tables": count, "parts": parts},
        f"{plural(count, 'table')} of {place} {'is' if count == 1 else 'are'} in {parts} parts each now."
        if count
        else f"The tables of {place} are in parts already.",
    )


@command("store reindex", json=False, lacks="nothing to embed")
async def reindex(
    view: View,
    perdure: AsyncPerdure,
    archive: Annotated[str | None, option("The passages of this archive, by name or id.", "ARCHIVE")] = None,
    agent: Annotated[str | None, agent_option("The messages of this agent, by name or id.")] = None,
    again: Annotated[bool, flag("--again", "Embed also texts that have a vector.")] = False,
) -> int:
    """Embed texts that have no vector of the current embedder; by default all texts.

    It can be stopped and started again at any time; searches go on with what is there.
    """
    owners: list[str] = [] if archive is None else [(await perdure.archives.get(archive)).id]
    owners += [] if agent is None else [(await get_agent(view, perdure, agent)).id]
    start = time.monotonic()
    try:
        with progress_bar() as progress:
            result = await perdure.upkeep.reindex(owners, again=again, progress=progress)
    except asyncio.CancelledError:
        view.hint(
            "Stopped. What is done stays; `perdure store reindex` goes on, and so does any process with the store."
        )
        raise
    rate = result.made / max(time.monotonic() - start, 0.001)
    now = f", {result.made:,} of them now ({rate:,.0f} a second)" if result.made > 0 else ""
    texts = plural(sum(scope.scope.row_count for scope in result.counts), "text")
    view.print(f"{texts} with a vector of {result.model}{now}.")
    failed = [scope for scope in result.counts if scope.failed]
    for scope in failed:
        view.error(PerdureError(f"{scope.failed:,} of {scope.scope.owner_id} could not be embedded: {scope.failure}"))
    if failed:
        view.hint("They are found by their words; `perdure store reindex` tries them again.")
    return int(bool(failed))
