"""Upkeep: what is derived agrees with the rows after everything that may be done to them."""

from __future__ import annotations

from dataclasses import replace

from perdure.core.ids import AgentId, ArchiveId
from perdure.core.messages import Text
from perdure.core.tx import Fault, Tx
from perdure.testing.store_contract.base import ADA, AT, AWKWARD, Contract, found_messages, found_passages
from perdure.testing.store_contract.vectors import MODEL, blob

__all__ = ["UpkeepContract", "faults_of"]


def faults_of(tx: Tx, *, limit: int = 3, repair: bool = False) -> list[Fault]:
    """Everything that differs, compared a few rows at a time."""
    found: list[Fault] = []
    for owner in tx.upkeep.owners():
        seq: int | None = 0
        while seq is not None:
            checked = tx.upkeep.check(owner, from_seq=seq, limit=limit, repair=repair)
            found += checked.faults
            seq = checked.next_seq
    return found


class UpkeepContract(Contract):
    async def test_what_is_derived_agrees_with_the_rows(self) -> None:
        """After adding, changing, tagging, removing and deleting, with vectors and without; rebuilt it still does."""
        async with self.opened() as store:

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
                return agent.id, archive.id

            agent_id, archive_id = await store.write(fill)
            assert await store.read(faults_of) == []
            assert await store.write(lambda tx: [tx.upkeep.rebuild_words(kind) > 5 for kind in ("agent", "archive")])
            assert await store.read(faults_of) == []
            assert len(await store.read(lambda tx: found_messages(tx, agent_id, "walrus"))) == 1
            assert len(await store.read(lambda tx: found_passages(tx, archive_id, "penguin"))) == 1
