"""`perdure store`: damage, indexes that differ from the texts, traces, and vectors."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from typing import Annotated

from perdure.cli.commands.run import agent_option, command, flag, for_work, option

if for_work(__name__):
    import asyncio

    from rich.text import Text

    from perdure.app import forget_mark
    from perdure.cli.session.work import get_agent, has_store, no_store, open_store, progress_bar
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output, plural, visible
    from perdure.core.errors import StoreDamaged
    from perdure.library.perdure import AsyncPerdure
    from perdure.library.upkeep import Comparison
    from perdure.settings import Settings

_ADVICE = re.compile(r"; `perdure store verify` tells[^;]*$")
"""The advice to run `store verify` in an error, which makes no sense in the error of that command itself."""
RESTORE = "What was damaged can't be made anew: restore a backup by `perdure restore FILE` (docs/operations.md)."


@command("store verify")
async def verify(
    view: Output,
    repair: Annotated[bool, flag("--repair", "Rebuild indexes, vectors and counts that differ.")] = False,
    accept_loss: Annotated[bool, flag("--accept-loss", "Continue with the rest of a store whose log is gone.")] = False,
) -> int:
    """Look for damage, and compare the search indexes, vectors and counts with the stored texts.

    Exit code 1: something is damaged or differs, and was not repaired.
    """
    if accept_loss and (path := Settings.from_environment().store_path).exists():
        forget_mark(path)
    try:
        if not has_store(Settings.from_environment()):
            raise no_store("nothing to compare")
        async with open_store() as perdure:
            upkeep = perdure.upkeep
            if problems := await upkeep.find_damage():
                # Nothing in such a file can be trusted, so nothing else is compared.
                lines = [Text.assemble(("✗ ", "bold red"), visible(problem)) for problem in problems]
                view.show({"damage": problems}, *lines, Text("The file is damaged.", "bold red"))
                view.hint(RESTORE)
                return 1
            with progress_bar() as progress:
                comparison = await upkeep.compare(repair=repair, progress=progress)
            return _show_comparison(view, comparison)
    except StoreDamaged as error:
        raise StoreDamaged(_ADVICE.sub("", str(error))) from error


def _show_comparison(view: Output, comparison: Comparison) -> int:
    """Print what differs, and return the exit code."""
    faults, hint = comparison.faults, view.hint
    rows = sum(owner.rows for owner in comparison.owners)
    parts = [Text(f"{rows:,} rows of {len(comparison.owners):,} agents and archives were compared.")]
    counts: defaultdict[tuple[str, str, bool], int] = defaultdict(int)
    for fault in faults:
        counts[fault.owner_id, fault.text, fault.repaired] += fault.count
    for (owner_id, text, repaired), count in counts.items():
        sign, style = ("✓ repaired", "green") if repaired else ("✗", "bold red")
        parts.append(Text.assemble((f"{sign} ", style), f"{owner_id}: {count:,} {text}"))
    if comparison.unfinished:
        parts.append(Text("A full-text index is being made anew, and is not done.", "bold red"))
    elif not faults:
        parts.append(Text("All agrees.", style="green"))
    shape = fields(comparison, "without_checksum") | {"rows": rows, "owners": len(comparison.owners)}
    listed = [fields(fault, "owner_id", "kind", "text", "count", "repaired") for fault in faults]
    view.show(shape | {"unfinished": sorted(comparison.unfinished), "faults": listed}, *parts)
    if comparison.unfinished:
        hint("`perdure store verify --repair` goes on with it.")
        return 1
    if comparison.without_checksum:
        older = f"{comparison.without_checksum:,} older rows have no checksum"
        hint(f"{older}: `perdure store verify --repair` gives them one.")
    if any(fault.kind == "damage" for fault in faults):
        hint(RESTORE)
    if any(not fault.repaired and fault.kind != "damage" for fault in faults):
        hint("`perdure store verify --repair` makes it anew from the texts. Nothing that was said is touched.")
    return int(any(not fault.repaired for fault in faults))


@command("store scrub", lacks="nothing to scrub")
async def scrub(view: Output, perdure: AsyncPerdure) -> None:
    """Remove every trace of what was deleted from the indexes, the free space of the database and its log.

    The database is rewritten, and nobody else can write meanwhile. Run it after deleting what nobody may find.
    """
    began = time.monotonic()
    with progress_bar() as progress:
        await perdure.upkeep.scrub(progress)
    seconds = time.monotonic() - began
    done = f"Written anew in {seconds:.1f} s: nothing that was deleted is left in it."
    view.show({"seconds": round(seconds, 3)}, done)
    view.hint("Backups and copies keep what was in the store when they were made.")


@command("store reindex", lacks="nothing to embed")
async def reindex(
    view: Output,
    perdure: AsyncPerdure,
    archive: Annotated[str | None, option("The passages of this archive, by name or id.", "ARCHIVE")] = None,
    agent: Annotated[str | None, agent_option("The messages of this agent, by name or id.")] = None,
    again: Annotated[bool, flag("--again", "Also embed texts that have a vector already.")] = False,
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
    texts = sum(scope.scope.row_count for scope in result.counts)
    failed = [scope for scope in result.counts if scope.failed]
    failures = [fields(scope, "failed", "failure", owner_id="scope.owner_id") for scope in failed]
    shape = {"texts": texts, "failures": failures} | fields(result, "model", "made")
    view.show(shape, f"{plural(texts, 'text')} with a vector of {result.model}{now}.")
    for scope in failed:
        view.note(f"{scope.failed:,} of {scope.scope.owner_id} could not be embedded: {scope.failure}")
    if failed:
        view.hint("They are found by their words; `perdure store reindex` tries them again.")
    return int(bool(failed))
