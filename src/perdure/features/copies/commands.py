"""`perdure backup`, `perdure restore`, `perdure migrate-db` and `perdure store split`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

from perdure.cli.commands.run import Yes, argument, command, for_work, option

if for_work(__name__):
    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import confirm, progress_bar
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output, plural
    from perdure.core.incoming.addresses import check_store_address, is_postgres, without_password
    from perdure.features.copies.moves import migrate_db as copy_database
    from perdure.features.copies.moves import same_address
    from perdure.features.copies.moves import split as split_store
    from perdure.features.copies.restore import read_backup
    from perdure.features.copies.restore import restore as restore_store
    from perdure.library.perdure import AsyncPerdure
    from perdure.scratch import user_path
    from perdure.settings import Settings

KEY_HINT = "Secrets are encrypted in it; keep the key (secret.key or PERDURE_SECRET_KEY) apart from it."


@command("backup", lacks="nothing to back up")
async def backup(
    view: Output, perdure: AsyncPerdure, path: Annotated[str, argument("The file to write.", "PATH")]
) -> None:
    """Copy the store as it is now to a new file, while agents work."""
    file = user_path(path)
    with progress_bar() as progress:
        await perdure.app.ports.store.backup(file, lambda done, total: progress("copying", done, total))
    place = perdure.upkeep.place
    summary = read_backup(file)
    size = file.stat().st_size
    view.show(
        {"backup": str(file), "of": place, "bytes": size, "agents": summary.agents, "messages": summary.messages},
        f"{file}: {size:,} bytes, {plural(summary.agents, 'agent')}, {plural(summary.messages, 'message')}.",
    )
    view.hint(f"`perdure restore {shell_word(str(file))}` puts it in the place of the store. {KEY_HINT}")


@command("restore")
async def restore(
    view: Output, path: Annotated[str, argument("A file written by `perdure backup`.", "PATH")], yes: Yes = False
) -> None:
    """Put a backup in the place of the store. The old one is kept."""
    file, address = user_path(path), Settings.from_environment().store_address
    summary = read_backup(file)
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
    view: Output,
    source: Annotated[str, argument("A file or postgresql://...", "FROM")],
    target: Annotated[str, argument("An empty database, or a file to create.", "TO")],
) -> None:
    """Copy a store to another database, such as PostgreSQL.

    If it is interrupted, run it again: it continues where it stopped.
    """
    check_store_address("FROM", source)
    check_store_address("TO", target)
    from_, to = (address if is_postgres(address) else user_path(address) for address in (source, target))
    began = time.monotonic()
    with progress_bar() as progress:
        report = await copy_database(from_, to, at=datetime.now(UTC), progress=progress)
    seconds = max(time.monotonic() - began, 0.001)
    place = without_password(to)
    rate = f"{report.rows / seconds:,.0f} a second"
    view.show(
        {
            "from": without_password(from_),
            "to": place,
            **fields(report, "rows", "tables", "digest", "resumed"),
            "seconds": round(seconds, 3),
        },
        f"{plural(report.rows, 'row')} of {plural(report.tables, 'table')} ({rate}); both sides have the content hash"
        f" {report.digest}.",
    )
    key = " Set PERDURE_SECRET_KEY to what secret.key holds." if is_postgres(to) and not is_postgres(from_) else ""
    is_used = same_address(to, Settings.from_environment().store_address)
    use = "`perdure` uses it now." if is_used else f"Set PERDURE_STORE={shell_word(place)} to use it."
    view.hint(f"{use}{key} The old store is unchanged: keep it until you have looked at the new one.")


@command("store split")
async def split(
    view: Output, parts: Annotated[int, option("How many parts of each table: 2 to 256.", "N")] = 16
) -> None:
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
