"""`perdure verify`: does what search is made of agree with the texts? And making it agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from perdure.app import accept_loss as go_on_without_log
from perdure.cli.reindex import progress_bar
from perdure.cli.terminal import Terminal, standard_streams
from perdure.core.errors import InvalidInput, PerdureError
from perdure.core.ports import Store
from perdure.core.tx import Checked, Fault, Owner, OwnerKind, Tx
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["verify"]

PAGE = 500


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
            owners, faults, unended = await _compare(perdure.app.store, repair=repair, bar=err.isatty())
    except PerdureError as error:
        terminal.error(str(error))
        return 1
    return _told(terminal, owners, faults, unended)


async def _compare(
    store: Store, *, repair: bool, bar: bool
) -> tuple[Sequence[Owner], Sequence[Fault], AbstractSet[OwnerKind]]:
    """What was compared, what differs, and of whose texts a new index was begun that is not done."""
    unended = {*await store.read(lambda tx: tx.upkeep.rebuilding())}
    owners: list[Owner] = []
    while page := await store.read(_owners, owners[-1].number if owners else -1):
        owners += page
    faults: list[Fault] = []
    stale: set[OwnerKind] = set()
    do = store.write if repair else store.read
    with progress_bar(shown=bar) as progress:
        if repair:
            for kind in sorted(unended):
                await _rebuild(store, kind, owners, progress)
        task = progress.add_task("comparing", total=sum(owner.rows for owner in owners))
        before = 0
        for owner in owners:
            seq: int | None = 0
            while seq is not None:
                checked = await do(_check, owner, seq, repair)
                faults += checked.faults
                if any(fault.kind == "stale words" and not fault.repaired for fault in checked.faults):
                    stale.add(owner.kind)
                seq = checked.next_seq
                progress.update(task, completed=before + (owner.rows if seq is None else min(seq, owner.rows)))
            before += owner.rows
        if repair:
            for kind in sorted(stale):
                await _rebuild(store, kind, owners, progress)
    if repair:
        faults = [Fault(one.kind, one.owner_id, one.text, one.count, True) for one in faults]
    return owners, faults, unended if not repair else set()


async def _rebuild(store: Store, kind: OwnerKind, owners: Sequence[Owner], progress: Progress) -> None:
    """In steps of one transaction each: others write meanwhile, and search as before until all is done."""
    texts = {"agent": "messages", "archive": "passages"}[kind]
    of_kind = [owner for owner in owners if owner.kind == kind]
    task = progress.add_task(f"making the index of {texts} anew", total=sum(owner.rows for owner in of_kind))
    while at := await store.write(lambda tx: tx.upkeep.rebuild_words(kind)):
        number, next_seq = at
        done = sum(owner.rows for owner in of_kind if owner.number < number)
        progress.update(task, completed=done + next_seq)


def _told(terminal: Terminal, owners: Sequence[Owner], faults: Sequence[Fault], unended: AbstractSet[OwnerKind]) -> int:
    from rich.text import Text

    rows = sum(owner.rows for owner in owners)
    terminal.show(Text(f"{rows:,} rows of {len(owners):,} agents and archives were compared."))
    sums: defaultdict[tuple[str, str, bool], int] = defaultdict(int)
    for fault in faults:
        sums[fault.owner_id, fault.text, fault.repaired] += fault.count
    for (owner_id, text, repaired), count in sums.items():
        sign, style = ("✓ repaired", "green") if repaired else ("✗", "bold red")
        terminal.show(Text.assemble((f"{sign} ", style), f"{owner_id}: {count:,} {text}"))
    if unended:
        terminal.show(Text("A full-text index is being made anew, and is not done.", "bold red"))
        terminal.hint("`perdure verify --repair` goes on with it.")
        return 1
    if not faults:
        terminal.show(Text("All agrees.", style="green"))
    if any(not fault.repaired for fault in faults):
        terminal.hint("`perdure verify --repair` makes it anew from the texts. Nothing that was said is touched.")
        return 1
    return 0


def _owners(tx: Tx, after: int) -> Sequence[Owner]:
    return tx.upkeep.owners(after=after, limit=PAGE)


def _check(tx: Tx, owner: Owner, from_seq: int, repair: bool) -> Checked:
    return tx.upkeep.check(owner, from_seq=from_seq, repair=repair)
