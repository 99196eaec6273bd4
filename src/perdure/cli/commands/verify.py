"""`perdure verify`: is the file whole, are the texts as they were written, does what search is made of agree with them?
And making it agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perdure.app import accept_loss as go_on_without_log
from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.cli.commands.reindex import progress_bar
from perdure.cli.views.fold import visible
from perdure.core.errors import InvalidInput, PerdureError, StoreDamaged
from perdure.core.upkeep import Checked, CheckedBlocks, Fault, Owner
from perdure.core.vectors import OwnerKind
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings
from perdure.storage.store import Store
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["verify"]

PAGE = 500
RESTORE = "What was damaged can't be made anew: restore a backup, see docs/operations.md, a damaged file."

Do = Callable[..., Awaitable[Any]]
"""`store.read`, or `store.write` for a repair."""


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
            store = perdure.app.store
            if broken := await store.read(lambda tx: tx.upkeep.integrity()):
                return _damaged(terminal, broken)
            found = await _compare(store, repair=repair, bar=err.isatty())
    except PerdureError as error:
        terminal.error(str(error))
        return 1
    return _told(terminal, found)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was compared, what differs, of whose texts a new index was begun that is not done, and how many rows have no
    checksum."""

    owners: Sequence[Owner]
    faults: Sequence[Fault]
    unended: AbstractSet[OwnerKind]
    bare: int


async def _compare(store: Store, *, repair: bool, bar: bool) -> _Found:
    unended = {*await store.read(lambda tx: tx.upkeep.rebuilding())}
    owners: list[Owner] = []
    while page := await store.read(_owners, owners[-1].number if owners else -1):
        owners += page
    stale: set[OwnerKind] = set()
    do = store.write if repair else store.read
    faults, bare = await _compare_blocks(do, repair)
    with progress_bar(shown=bar) as progress:
        if repair:
            for kind in sorted(unended):
                await _rebuild(store, kind, owners, progress)
        task = progress.add_task("comparing", total=sum(owner.rows for owner in owners))
        before = 0
        for owner in owners:
            seq: int | None = 0
            while seq is not None:
                try:
                    checked = await do(_check, owner, seq, repair)
                except StoreDamaged:
                    faults.append(Fault("damage", owner.id, f"place from number {seq} on that can't be read", 1, False))
                    break
                faults += checked.faults
                bare += checked.bare
                if any(fault.kind == "stale words" and not fault.repaired for fault in checked.faults):
                    stale.add(owner.kind)
                seq = checked.next_seq
                progress.update(task, completed=before + (owner.rows if seq is None else min(seq, owner.rows)))
            before += owner.rows
        if repair:
            for kind in sorted(stale):
                await _rebuild(store, kind, owners, progress)
    if repair:
        faults = [replace(one, repaired=one.kind != "damage") for one in faults]
    return _Found(owners, faults, set() if repair else unended, 0 if repair else bare)


async def _compare_blocks(do: Do, repair: bool) -> tuple[list[Fault], int]:
    faults: list[Fault] = []
    bare, after = 0, ("", -1)
    while True:
        checked = await do(_check_blocks, after, repair)
        faults += checked.faults
        bare += checked.bare
        if checked.after is None:
            return faults, bare
        after = checked.after


async def _rebuild(store: Store, kind: OwnerKind, owners: Sequence[Owner], progress: Progress) -> None:
    """In steps of one transaction each: others write meanwhile, and search as before until all is done."""
    texts = {"agent": "messages", "archive": "passages"}[kind]
    of_kind = [owner for owner in owners if owner.kind == kind]
    task = progress.add_task(f"making the index of {texts} anew", total=sum(owner.rows for owner in of_kind))
    while at := await store.write(lambda tx: tx.upkeep.rebuild_words(kind)):
        number, next_seq = at
        done = sum(owner.rows for owner in of_kind if owner.number < number)
        progress.update(task, completed=done + next_seq)


def _damaged(terminal: Terminal, problems: Sequence[str]) -> int:
    """What the database finds wrong with its own file: nothing in it can be trusted, so nothing else is compared."""
    from rich.text import Text

    for problem in problems:
        terminal.show(Text.assemble(("✗ ", "bold red"), visible(problem)))
    terminal.show(Text("The file is damaged.", "bold red"))
    terminal.hint(RESTORE)
    return 1


def _told(terminal: Terminal, found: _Found) -> int:
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
    if found.unended:
        terminal.show(Text("A full-text index is being made anew, and is not done.", "bold red"))
        terminal.hint("`perdure verify --repair` goes on with it.")
        return 1
    if not faults:
        terminal.show(Text("All agrees.", style="green"))
    if found.bare:
        terminal.hint(f"{found.bare:,} rows of before have no checksum: `perdure verify --repair` gives them one.")
    if any(fault.kind == "damage" for fault in faults):
        terminal.hint(RESTORE)
    if any(not fault.repaired and fault.kind != "damage" for fault in faults):
        terminal.hint("`perdure verify --repair` makes it anew from the texts. Nothing that was said is touched.")
    return int(any(not fault.repaired for fault in faults))


def _owners(tx: Tx, after: int) -> Sequence[Owner]:
    return tx.upkeep.owners(after=after, limit=PAGE)


def _check(tx: Tx, owner: Owner, from_seq: int, repair: bool) -> Checked:
    return tx.upkeep.check(owner, from_seq=from_seq, repair=repair)


def _check_blocks(tx: Tx, after: tuple[str, int], repair: bool) -> CheckedBlocks:
    return tx.upkeep.check_blocks(after=after, repair=repair)
