"""Upkeep: what is derived agrees with the rows after everything that may be done to them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from perdure.core.ids import AgentId, ArchiveId
from perdure.core.messages import Text
from perdure.core.vectors import IndexFault, OwnerKind
from perdure.storage.store import Store
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, AWKWARD, Contract, match_messages, match_passages
from tests.contracts.vectors import MODEL, blob

KINDS: tuple[OwnerKind, ...] = ("agent", "archive")


def faults_of(tx: Tx, *, limit: int = 3, repair: bool = False) -> list[IndexFault]:
    """Everything that differs, compared a few rows at a time."""
    found: list[IndexFault] = []
    for owner in tx.upkeep.owners():
        seq: int | None = 0
        while seq is not None:
            checked = tx.upkeep.check(owner, from_seq=seq, limit=limit, repair=repair)
            found += checked.faults
            seq = checked.after
    return found


class UpkeepContract(Contract):
    async def test_the_mark_changes_with_each_commit(self) -> None:
        """Of this handle and of another one; it stays while nothing is written."""
        async with self.open_store() as store, self.open_store() as other:
            # PostgreSQL's is of the whole server, which may clean a table up meanwhile.
            assert any([await store.mark() == await store.mark() for _ in range(5)])
            before = await store.mark()
            for writer in (store, other):
                await writer.write(self.add_agent)
                after = await store.mark()
                assert after != before
                before = after
            assert await store.mark() == before
            assert store.place and store.place == other.place

    async def test_what_was_written_has_checksums_that_agree(self) -> None:
        """Of messages, their revisions and tombstones, passages that were changed, and each version of a block, a few
        at a time."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> None:
                agent, archive = self.add_agent(tx), self.add_archive(tx)
                self.say(tx, agent.id, *AWKWARD, "a walrus", self.draft("seen", role="tool"))
                messages = tx.messages.list(agent.id)
                tx.messages.revise(messages[0].id, [Text("other words")], author=ADA, at=AT)
                tx.messages.revise(messages[1].id, None, author=ADA, at=AT)
                passages = [self.add_passage(tx, archive.id, text, "sea") for text in AWKWARD]
                tx.passages.put(replace(passages[0], text="changed", created_at=AT + timedelta(days=1)))
                block = self.add_block(tx, "human", agent_id=agent.id)
                for value in ("one", "two", "three"):
                    block = replace(block, value=value)
                    block = tx.blocks.put(block, expected=block.version, author=ADA, at=AT)

            await store.write(fill)

            def compare(tx: Tx) -> tuple[list[IndexFault], int, int]:
                faults, bare, pages = faults_of(tx), 0, 0
                bare += sum(tx.upkeep.check(owner).without_checksum for owner in tx.upkeep.owners())
                after: tuple[str, int] | None = ("", -1)
                while after is not None:
                    checked = tx.upkeep.check_blocks(after=after, limit=2)
                    faults += checked.faults
                    bare += checked.without_checksum
                    after, pages = checked.after, pages + 1
                return faults, bare, pages

            assert await store.read(compare) == ([], 0, 3)
            assert list(await store.read(lambda tx: tx.upkeep.integrity())) == []

    async def test_what_is_derived_agrees_with_the_rows(self) -> None:
        """After adding, changing, tagging, removing and deleting, with vectors and without; rebuilt it still does."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[AgentId, ArchiveId]:
                for embedded in (False, True):
                    agent, archive = self.add_agent(tx), self.add_archive(tx)
                    if embedded:
                        tx.vectors.open(agent.number, "agent", agent.id, MODEL)
                        tx.vectors.open(archive.number, "archive", archive.id, MODEL)
                    self.say(tx, agent.id, *AWKWARD, "a walrus", "a penguin", self.draft("seen", role="tool"))
                    messages = tx.messages.list(agent.id)
                    tx.messages.revise(messages[0].id, [Text("other words than those")], author=ADA, at=AT)
                    tx.messages.revise(messages[1].id, None, author=ADA, at=AT)
                    passages = [self.add_passage(tx, archive.id, text, "sea", f"t{len(text)}") for text in AWKWARD]
                    passages.append(self.add_passage(tx, archive.id, "a walrus"))
                    tx.passages.put(replace(passages[0], text="changed to a penguin", tags=("land",)))
                    tx.passages.delete(archive.id, [passages[1].seq, passages[2].seq])
                    if embedded:
                        for number in (agent.number, archive.number):
                            rows = [(seq, blob(1, 0)) for seq in (3, 4, 5)]
                            tx.vectors.put(number, rows, model=MODEL, dimensions=2)
                        tx.passages.put(replace(passages[3], text="changed again"))
                        tx.passages.delete(archive.id, [passages[4].seq])
                gone = self.add_agent(tx, "gone")
                self.say(tx, gone.id, "a walrus")
                tx.agents.delete(gone.id)
                tx.upkeep.carry_out_deletes(limit=1)
                return agent.id, archive.id

            agent_id, archive_id = await store.write(fill)
            assert await store.read(faults_of) == []
            assert await store.read(lambda tx: tx.upkeep.rebuilding()) == []
            for kind in KINDS:
                while at := await store.write(_rebuild, kind, 500):
                    assert at > (0, 0)
            assert await store.read(faults_of) == []
            assert len(await store.read(lambda tx: match_messages(tx, agent_id, "walrus"))) == 1
            assert len(await store.read(lambda tx: match_passages(tx, archive_id, "penguin"))) == 1

    @pytest.mark.slow
    async def test_an_index_is_made_anew_in_steps_while_others_write(self) -> None:
        """After each step something is said, revised, reset, changed, deleted, added; searches find at every point what
        is there, and in the end nothing differs."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[AgentId, ArchiveId]:
                agent, other = self.add_agent(tx), self.add_agent(tx, "other")
                archive = self.add_archive(tx)
                for one in (agent, other):
                    self.say(tx, one.id, *(f"a walrus {number} {'long ' * 250}" for number in range(6)))
                for number in range(6):
                    self.add_passage(tx, archive.id, f"a walrus {number}", "sea")
                return agent.id, archive.id

            agent_id, archive_id = await store.write(fill)
            messages = await store.read(lambda tx: tx.messages.list(agent_id))
            passages = await store.read(lambda tx: tx.passages.page(archive_id))
            changes: Iterator[Callable[[Tx], object]] = iter(
                [
                    lambda tx: self.say(tx, agent_id, f"a gull {'long ' * 250}"),
                    lambda tx: tx.messages.revise(messages[0].id, [Text("a gull now")], author=ADA, at=AT),
                    lambda tx: tx.messages.revise(messages[5].id, None, author=ADA, at=AT),
                    lambda tx: tx.passages.put(replace(passages[0], text="a gull now")),
                    lambda tx: tx.passages.delete(archive_id, [1, 5]),
                    lambda tx: self.add_passage(tx, archive_id, "a gull flies"),
                    lambda tx: self.say(tx, self.add_agent(tx, "third").id, "a walrus"),
                    lambda tx: tx.passages.put(replace(passages[4], text="a gull sits")),
                    lambda tx: tx.resets.add(tx.conversations.get_by_seq(agent_id, 0), author=ADA, at=AT),
                    lambda tx: tx.resets.carry_out(agent_id),
                ]
            )

            def there(tx: Tx) -> bool:
                messages = {one.seq for one in tx.messages.list(agent_id) if "walrus" in one.text}
                kept = {one.seq for one in tx.passages.page(archive_id) if "walrus" in one.text}
                return (messages, kept) == (
                    set(match_messages(tx, agent_id, "walrus")),
                    set(match_passages(tx, archive_id, "walrus")),
                )

            for kind, limit in itertools.product(KINDS, (1, 2, 4)):
                assert await store.write(_rebuild, kind, limit)
                assert await store.read(lambda tx: tx.upkeep.rebuilding()) == [kind]
                while True:
                    if change := next(changes, None):
                        await store.write(change)
                    assert await store.read(there)
                    assert await store.read(faults_of) == []
                    if not await store.write(_rebuild, kind, limit):
                        break
                assert await store.read(lambda tx: tx.upkeep.rebuilding()) == []
                assert await store.read(there)
                assert await store.read(faults_of) == []
            assert next(changes, None) is None, "there were fewer steps than changes"

    async def test_several_may_make_an_index_anew_at_once(self) -> None:
        """Each does some of the steps."""
        async with self.open_store() as store, self.open_store() as other:

            def fill(tx: Tx) -> ArchiveId:
                archive = self.add_archive(tx)
                for number in range(12):
                    self.add_passage(tx, archive.id, f"a walrus {number}")
                return archive.id

            async def work(store: Store) -> None:
                while await store.write(_rebuild, "archive", 2):
                    pass

            archive_id = await store.write(fill)
            await asyncio.gather(*map(work, (store, other, store, other)))
            assert await store.read(lambda tx: tx.upkeep.rebuilding()) == []
            assert await store.read(faults_of) == []
            assert len(await store.read(lambda tx: match_passages(tx, archive_id, "walrus"))) == 12


def _rebuild(tx: Tx, kind: OwnerKind, limit: int) -> tuple[int, int] | None:
    return tx.upkeep.rebuild_words(kind, limit=limit)
