"""`perdure verify`: is the file whole, are the texts as they were written, does what search is made of agree with them?
And making it agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from perdure.app import accept_loss as go_on_without_log
from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.cli.commands.reindex import progress_bar
from perdure.cli.views.fold import visible
from perdure.core.errors import InvalidInput, PerdureError
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.upkeep import Comparison
from perdure.settings import Settings

__all__ = ["verify"]

RESTORE = "What was damaged can't be made anew: restore a backup, see docs/operations.md, a damaged file."


async def verify(*, repair: bool, accept_loss: bool = False) -> int:
    """Compare everything and tell what differs; the exit code."""
    out, err = standard_streams()
    terminal = Terminal(out, err, interactive=False)
    try:
        settings = Settings.from_environment()
        if not settings.store_path.exists():
            raise InvalidInput(f"there is no store yet at {settings.store_path}: nothing to compare")
        if accept_loss:
            go_on_without_log(settings.store_path)
        async with await AsyncPerdure.open(settings=settings) as perdure:
            upkeep = perdure.services.upkeep
            if problems := await upkeep.find_damage():
                return _show_damage(terminal, problems)
            with progress_bar(shown=err.isatty()) as progress:
                comparison = await upkeep.compare(repair=repair, progress=progress)
    except PerdureError as error:
        terminal.error(str(error))
        return 1
    return _show(terminal, comparison)


def _show_damage(terminal: Terminal, problems: Sequence[str]) -> int:
    """What the database finds wrong with its own file: nothing in it can be trusted, so nothing else is compared."""
    from rich.text import Text

    for problem in problems:
        terminal.show(Text.assemble(("✗ ", "bold red"), visible(problem)))
    terminal.show(Text("The file is damaged.", "bold red"))
    terminal.hint(RESTORE)
    return 1


def _show(terminal: Terminal, found: Comparison) -> int:
    """Show what differs; the exit code."""
    from rich.text import Text

    owners, faults = found.owners, found.faults
    rows = sum(owner.rows for owner in owners)
    terminal.show(Text(f"{rows:,} rows of {len(owners):,} agents and archives were compared."))
    sums: defaultdict[tuple[str, str, bool], int] = defaultdict(int)
    for fault in faults:
        sums[fault.owner_id, fault.text, fault.repaired] += fault.count
    for (owner_id, text, repaired), count in sums.items():
        sign, style = ("✓ repaired", "green") if repaired else ("✗", "bold red")
        terminal.show(Text.assemble((f"{sign} ", style), f"{owner_id}: {count:,} {text}"))
    if found.unfinished:
        terminal.show(Text("A full-text index is being made anew, and is not done.", "bold red"))
        terminal.hint("`perdure verify --repair` goes on with it.")
        return 1
    if not faults:
        terminal.show(Text("All agrees.", style="green"))
    if found.without_checksum:
        terminal.hint(
            f"{found.without_checksum:,} rows of before have no checksum: `perdure verify --repair` gives them one."
        )
    if any(fault.kind == "damage" for fault in faults):
        terminal.hint(RESTORE)
    if any(not fault.repaired and fault.kind != "damage" for fault in faults):
        terminal.hint("`perdure verify --repair` makes it anew from the texts. Nothing that was said is touched.")
    return int(any(not fault.repaired for fault in faults))
