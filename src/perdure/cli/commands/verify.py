"""`perdure verify`: check the file and the texts for damage, and the search indexes against the texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich.text import Text

from perdure.app import accept_loss as accept_lost_log
from perdure.cli.open_store import Output, with_store
from perdure.cli.progress import progress_bar
from perdure.cli.views.fold import visible
from perdure.core.errors import InvalidInput
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.upkeep import Comparison
from perdure.settings import Settings

RESTORE = "What was damaged can't be made anew: restore a backup, see docs/operations.md, a damaged file."


async def verify(*, repair: bool, accept_loss: bool = False) -> int:
    """Compare everything, print what differs, and return the exit code."""
    output = Output()

    def check(settings: Settings) -> None:
        if not settings.store_path.exists():
            raise InvalidInput(f"there is no store yet at {settings.store_path}: nothing to compare")
        if accept_loss:
            accept_lost_log(settings.store_path)

    async def work(perdure: AsyncPerdure) -> int:
        upkeep = perdure.services.upkeep
        if problems := await upkeep.find_damage():
            return _print_damage(output, problems)
        with progress_bar() as progress:
            comparison = await upkeep.compare(repair=repair, progress=progress)
        return _print_comparison(output, comparison)

    return await with_store(output, work, check=check)


def _print_damage(output: Output, problems: Sequence[str]) -> int:
    """Print what SQLite's own check found. Nothing in such a file can be trusted, so nothing else is compared."""
    for problem in problems:
        output.terminal.show(Text.assemble(("✗ ", "bold red"), visible(problem)))
    output.terminal.show(Text("The file is damaged.", "bold red"))
    output.view.hint(RESTORE)
    return 1


def _print_comparison(output: Output, comparison: Comparison) -> int:
    show, hint, faults = output.terminal.show, output.view.hint, comparison.faults
    rows = sum(owner.rows for owner in comparison.owners)
    show(Text(f"{rows:,} rows of {len(comparison.owners):,} agents and archives were compared."))
    counts: defaultdict[tuple[str, str, bool], int] = defaultdict(int)
    for fault in faults:
        counts[fault.owner_id, fault.text, fault.repaired] += fault.count
    for (owner_id, text, repaired), count in counts.items():
        sign, style = ("✓ repaired", "green") if repaired else ("✗", "bold red")
        show(Text.assemble((f"{sign} ", style), f"{owner_id}: {count:,} {text}"))
    if comparison.unfinished:
        show(Text("A full-text index is being made anew, and is not done.", "bold red"))
        hint("`perdure verify --repair` goes on with it.")
        return 1
    if not faults:
        show(Text("All agrees.", style="green"))
    if comparison.without_checksum:
        hint(f"{comparison.without_checksum:,} older rows have no checksum: `perdure verify --repair` gives them one.")
    if any(fault.kind == "damage" for fault in faults):
        hint(RESTORE)
    if any(not fault.repaired and fault.kind != "damage" for fault in faults):
        hint("`perdure verify --repair` makes it anew from the texts. Nothing that was said is touched.")
    return int(any(not fault.repaired for fault in faults))
