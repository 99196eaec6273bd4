"""Vectors and the queue of texts that wait for them: versions, generations, claims, and texts that change meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from perdure.core.agents import Agent
from perdure.core.errors import EmbeddingMismatch, NotFound
from perdure.core.ids import ConversationId, OrgId
from perdure.core.messages import Text, ToolCall, ToolResult
from perdure.core.passages import Archive
from perdure.core.vectors import EmbeddingClaim, VectorBlock, VectorScope
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, AWKWARD, LATER, UNTIL, Contract, raises

MODEL = "test/words \x00"


def blob(*numbers: float) -> bytes:
    """A vector as it is stored: 16-bit floats."""
    return struct.pack(f"<{len(numbers)}e", *numbers)


def scope_of(tx: Tx, number: int) -> VectorScope:
    scope = tx.vectors.scope(number)
    assert scope is not None
    return scope


def vectors_in(tx: Tx, number: int) -> dict[int, bytes]:
    """seq -> vector of a scope."""
    changed = tx.vectors.list_changes(scope_of(tx, number), after_version=-1)
    return {seq: vector for seq, _, vector in changed if vector is not None}


def claimed_seqs(tx: Tx, *, model: str = MODEL, limit: int = 100) -> list[tuple[int, int]]:
    """(scope, number) of what is claimed until `UNTIL`, sorted."""
    return sorted((one.number, one.seq) for one in tx.vectors.claim(model, at=AT, until=UNTIL, limit=limit))


class VectorContract(Contract):
    def add_embedded(self, tx: Tx, model: str = MODEL) -> tuple[Agent, Archive]:
        """An agent and an archive, both open for vectors."""
        agent, archive = self.add_agent(tx), self.add_archive(tx)
        tx.vectors.open(agent.number, "agent", agent.id, model)
        tx.vectors.open(archive.number, "archive", archive.id, model)
        return agent, archive

    async def test_a_new_scope_has_nothing_and_nothing_to_look_through(self) -> None:
        """Opening twice leaves it as it is; what is not there can't be opened."""
        async with self.open_store() as store:
            agent, archive = await store.write(self.add_embedded)
            again = await store.write(lambda tx: tx.vectors.open(agent.number, "agent", agent.id, "other/model"))
            assert (again.model, again.owner_kind, again.owner_id) == (MODEL, "agent", agent.id)
            assert (again.dimensions, again.generation, again.version, again.row_count) == (None, 0, 0, 0)
            assert again.fill_from is None

            seen = await store.read(scope_of, archive.number)
            assert (seen.owner_kind, seen.settled) == ("archive", True)
            assert await store.read(lambda tx: tx.vectors.scope(10**6)) is None
            assert not await store.read(lambda tx: tx.vectors.has_work(MODEL, at=AT))
            with raises(NotFound):
                await store.write(lambda tx: tx.vectors.open(agent.number, "agent", archive.id, MODEL))
            with raises(NotFound):
                await store.write(lambda tx: tx.vectors.put(10**6, [(0, blob(1))], model=MODEL, dimensions=1))

    async def test_what_is_said_to_an_embedded_agent_waits_for_its_vector(self) -> None:
        """Users' and assistants' texts; not those of tools, of the engine, without text, or of other agents."""
        async with self.open_store() as store:
            agent, _ = await store.write(self.add_embedded)
            call = self.draft(ToolCall("c", "look", "{}"), role="assistant")
            result = self.draft(ToolResult("c", "look", "seen"), role="tool")
            messages = ("hello", self.draft("hi", role="assistant"), call, result, self.draft("x", kind="alert"))

            def say(tx: Tx) -> int:
                before = tx.vectors.queue_count
                self.say(tx, agent.id, *messages, self.draft("  \n"), self.draft("last"))
                self.say(tx, self.add_agent(tx, "bob").id, "not embedded")
                return tx.vectors.queue_count - before

            assert await store.write(say) == 3
            assert await store.read(lambda tx: tx.vectors.has_work(MODEL, at=AT))
            assert not await store.read(lambda tx: tx.vectors.has_work("other/model", at=AT))
            assert await store.write(claimed_seqs) == [(agent.number, 0), (agent.number, 1), (agent.number, 6)]

    async def test_passages_of_an_embedded_archive_wait_for_their_vectors(self) -> None:
        """Whatever their text is; those of other archives don't, and what is deleted waits no more."""
        async with self.open_store() as store:
            _, archive = await store.write(self.add_embedded)

            def fill(tx: Tx) -> list[int]:
                other = self.add_archive(tx)
                self.add_passage(tx, other.id, "not embedded")
                seqs = [self.add_passage(tx, archive.id, text) for text in AWKWARD]
                tx.passages.delete(archive.id, [seqs[2].seq])
                return [passage.seq for passage in seqs if passage is not seqs[2]]

            seqs = await store.write(fill)
            assert await store.write(claimed_seqs) == [(archive.number, seq) for seq in seqs]

    async def test_a_claim_is_one_workers_until_it_runs_out(self) -> None:
        """Nobody else gets it before; then anybody, and the tries are counted. Released it is free at once or later."""
        async with self.open_store() as store:
            _, archive = await store.write(self.add_embedded)
            await store.write(lambda tx: [self.add_passage(tx, archive.id, text) for text in "abc"])
            first = await store.write(lambda tx: tx.vectors.claim(MODEL, at=AT, until=UNTIL, limit=2))
            assert [(one.seq, one.tries, one.owner_id) for one in first] == [(0, 1, archive.id), (1, 1, archive.id)]
            assert await store.write(claimed_seqs) == [(archive.number, 2)]
            assert await store.write(claimed_seqs) == []

            late = await store.write(
                lambda tx: tx.vectors.claim(MODEL, at=LATER, until=LATER + timedelta(seconds=9), limit=9)
            )
            assert [(one.seq, one.tries) for one in late] == [(0, 2), (1, 2), (2, 2)]
            await store.write(lambda tx: tx.vectors.release(first, claimed=UNTIL))  # no longer theirs to give back
            assert await store.write(claimed_seqs) == []
            until = LATER + timedelta(seconds=9)
            await store.write(lambda tx: tx.vectors.release(late[:1], claimed=until))
            await store.write(lambda tx: tx.vectors.release(late[1:2], claimed=until, at=AT + timedelta(seconds=1)))
            again = await store.write(lambda tx: tx.vectors.claim(MODEL, at=AT, until=UNTIL, limit=9))
            assert [(one.seq, one.tries) for one in again] == [(0, 2)]
            soon = await store.write(
                lambda tx: tx.vectors.claim(MODEL, at=AT + timedelta(seconds=1), until=UNTIL, limit=9)
            )
            assert [(one.seq, one.tries) for one in soon] == [(1, 2)]

    async def test_a_claim_is_kept_for_longer_by_its_worker(self) -> None:
        """From then on it is known by its new end; one that ran out and is another's is not theirs to keep."""
        async with self.open_store() as store:
            _, archive = await store.write(self.add_embedded)
            await store.write(lambda tx: [self.add_passage(tx, archive.id, text) for text in "ab"])
            first = await store.write(lambda tx: tx.vectors.claim(MODEL, at=AT, until=UNTIL, limit=1))
            end = LATER + timedelta(seconds=5)
            await store.write(lambda tx: tx.vectors.renew(first, claimed=UNTIL, until=end))
            assert [one.seq for one in await store.write(late_claims)] == [1]
            await store.write(lambda tx: tx.vectors.renew(first, claimed=UNTIL, until=AT))
            row = [(0, blob(1))]
            put = [
                await store.write(
                    lambda tx, at=at: tx.vectors.put(archive.number, row, model=MODEL, dimensions=1, claimed=at)  # type: ignore[misc]
                )
                for at in (UNTIL, end)
            ]
            assert put == [[], [0]]

    async def test_what_is_added_is_embedded_from_the_beginning(self) -> None:
        """Agents and archives, where it was asked for and nowhere else."""
        async with self.open_store() as store:

            def add(tx: Tx) -> list[str | None]:
                with tx.vectors.use_embedding(MODEL):
                    numbers = [self.add_agent(tx).number, self.add_archive(tx).number]
                numbers += [self.add_agent(tx).number, self.add_archive(tx).number]
                scopes = [tx.vectors.scope(number) for number in numbers]
                return [None if scope is None else scope.model for scope in scopes]

            assert await store.write(add) == [MODEL, MODEL, None, None]

    async def test_blocks_of_any_size_give_each_vector_once_and_in_order(self) -> None:
        """However far apart their numbers are, and in whatever order they were put."""
        async with self.open_store() as store:
            _, archive = await store.write(self.add_embedded)
            number, seqs = archive.number, [0, 1, 2, 7, 8, 40, 41, 99]
            await store.write(lambda tx: [self.add_passage(tx, archive.id, f"text {index}") for index in range(100)])
            for seq in reversed(seqs):
                row = (seq, blob(seq, 1))
                await store.write(lambda tx, row=row: tx.vectors.put(number, [row], model=MODEL, dimensions=2))  # type: ignore[misc]

            def walked(tx: Tx, limit: int) -> tuple[list[int], bytes]:
                found, vectors, after = list[int](), b"", -1
                while (block := tx.vectors.block(scope_of(tx, number), after_seq=after, limit=limit)).last is not None:
                    assert len(block.seqs) <= limit
                    after, vectors = block.last, vectors + block.vectors
                    found += block.seqs
                return found, vectors

            for limit in (1, 2, 3, 8, 1_000):
                every = b"".join(blob(seq, 1) for seq in seqs)
                assert await store.read(walked, limit) == (seqs, every)

    async def test_a_vector_takes_its_text_from_the_queue(self) -> None:
        """It is there at the version it made; another one for the same text takes its place."""
        async with self.open_store() as store:
            _, archive = await store.write(self.add_embedded)
            number = archive.number
            await store.write(lambda tx: [self.add_passage(tx, archive.id, text) for text in "abc"])

            def put(tx: Tx) -> tuple[list[int], bool]:
                rows = [(0, blob(1, 0)), (2, blob(0, 1))]
                stored = tx.vectors.put(number, rows, model=MODEL, dimensions=2)
                return list(stored), scope_of(tx, number).settled

            assert await store.write(put) == ([0, 2], False)
            await store.write(lambda tx: tx.vectors.put(number, [(2, blob(-1, 0))], model=MODEL, dimensions=2))

            def look(tx: Tx) -> list[object]:
                scope = scope_of(tx, number)
                return [
                    (scope.version, scope.row_count, scope.dimensions),
                    tx.vectors.block(scope),
                    tx.vectors.block(scope, after_seq=0, limit=1),
                    tx.vectors.block(scope, after_seq=2),
                    tx.vectors.list_changes(scope, after_version=0),
                    tx.vectors.list_changes(scope, after_version=1),
                    tx.vectors.list_changes(scope, after_version=0, limit=1),
                    tx.vectors.list_changes(scope, after_version=1, after_seq=0),
                    sorted(tx.vectors.read(scope, [0, 1, 2, 99])),
                    tx.vectors.read(scope, []),
                ]

            first, second = (0, 1, blob(1, 0)), (2, 2, blob(-1, 0))
            assert await store.read(look) == [
                (2, 2, 2),
                VectorBlock(seqs=[0, 2], versions=[1, 2], vectors=blob(1, 0, -1, 0), last=2),
                VectorBlock(seqs=[2], versions=[2], vectors=blob(-1, 0), last=2),
                VectorBlock(),
                [first, second],
                [second],
                [first],
                [second],
                [(0, blob(1, 0)), (2, blob(-1, 0))],
                [],
            ]
            assert await store.write(claimed_seqs) == [(number, 1)]

    async def test_a_block_has_every_byte_of_its_vectors(self) -> None:
        """Whatever bytes they are, in order of the numbers; removed ones are told apart."""
        async with self.open_store() as store:
            _, archive = await store.write(self.add_embedded)
            number = archive.number
            vectors = [bytes((start + at) % 256 for at in range(512)) for start in (0, 129, 255)]
            await store.write(lambda tx: [self.add_passage(tx, archive.id, text) for text in "abcd"])

            def put(tx: Tx) -> None:
                tx.vectors.put(number, list(enumerate([*vectors, vectors[0]])), model=MODEL, dimensions=256)
                tx.vectors.remove(number, [1, 3])

            await store.write(put)
            block = await store.read(lambda tx: tx.vectors.block(scope_of(tx, number)))

            assert block == VectorBlock(
                seqs=[0, 2], versions=[1, 1], vectors=vectors[0] + vectors[2], removed=[(1, 2), (3, 2)], last=3
            )

    async def test_vectors_of_another_model_or_length_are_refused(self) -> None:
        """The error names both, and nothing is written."""
        async with self.open_store() as store:
            _, archive = await store.write(self.add_embedded)
            number = archive.number
            await store.write(lambda tx: [self.add_passage(tx, archive.id, text) for text in "ab"])
            await store.write(lambda tx: tx.vectors.put(number, [(0, blob(1, 0))], model=MODEL, dimensions=2))

            def put(tx: Tx, model: str, dimensions: int) -> None:
                tx.vectors.put(number, [(1, blob(*[0.5] * dimensions))], model=model, dimensions=dimensions)

            for model, dimensions in ((MODEL, 3), ("other/model", 2)):
                with raises(EmbeddingMismatch) as caught:
                    await store.write(put, model, dimensions)
                error = caught.error
                assert (error.stored_model, error.stored_dimensions) == (MODEL, 2)
                assert (error.model, error.dimensions) == (model, dimensions)
            assert await store.read(vectors_in, number) == {0: blob(1, 0)}
            assert await store.write(claimed_seqs) == [(number, 1)]

    async def test_a_text_that_went_or_changed_meanwhile_gets_no_stale_vector(self) -> None:
        """What a worker brings for a claim that is no longer the text's is left out; nothing else is."""
        async with self.open_store() as store:
            agent, archive = await store.write(self.add_embedded)

            def fill(tx: Tx) -> None:
                self.say(tx, agent.id, "one", "two", "three")
                for text in "abc":
                    self.add_passage(tx, archive.id, text)

            await store.write(fill)
            assert len(await store.write(claimed_seqs)) == 6

            def change(tx: Tx) -> None:
                first, second, _ = tx.messages.list(agent.id)
                tx.messages.revise(first.id, [Text("uno")], author=ADA, at=AT)
                tx.messages.revise(second.id, None, author=ADA, at=AT)
                tx.passages.delete(archive.id, [0])
                tx.passages.put(replace(tx.passages.page(archive.id)[0], text="new"))
                tx.passages.put(replace(tx.passages.page(archive.id)[1], tags=("kept",)))

            await store.write(change)

            def bring(tx: Tx, number: int, seqs: list[int]) -> list[int]:
                rows = [(seq, blob(1, 0)) for seq in seqs]
                return list(tx.vectors.put(number, rows, model=MODEL, dimensions=2, claimed=UNTIL))

            assert await store.write(bring, agent.number, [0, 1, 2]) == [2]
            assert await store.write(bring, archive.number, [0, 1, 2]) == [2]
            assert await store.write(bring, archive.number, [0, 1, 2]) == []
            assert await store.write(claimed_seqs) == [(agent.number, 0), (archive.number, 1)]

    async def test_vectors_go_with_what_a_reset_takes_out_of_view(self) -> None:
        """And so does the work on them; other conversations keep theirs."""
        async with self.open_store() as store:
            agent, _ = await store.write(self.add_embedded)

            def fill(tx: Tx) -> None:
                tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                self.say(tx, agent.id, "one", "two")
                self.say(tx, agent.id, "three", conversation_seq=1)
                tx.vectors.put(agent.number, [(0, blob(1, 0)), (2, blob(0, 1))], model=MODEL, dimensions=2)
                tx.resets.add(tx.conversations.get_by_seq(agent.id, 0), author=ADA, at=AT)
                assert not tx.resets.carry_out(agent.id)

            await store.write(fill)

            assert await store.read(vectors_in, agent.number) == {2: blob(0, 1)}
            assert await store.write(claimed_seqs) == []

    async def test_what_is_removed_is_told_to_whoever_knew_it(self) -> None:
        """A vector goes with its text: as a change of the next version, once, and the count follows."""
        async with self.open_store() as store:
            agent, archive = await store.write(self.add_embedded)

            def fill(tx: Tx) -> None:
                self.say(tx, agent.id, "one", "two", "three")
                tx.vectors.put(agent.number, [(seq, blob(seq, 1)) for seq in range(3)], model=MODEL, dimensions=2)
                first, second, _ = tx.messages.list(agent.id)
                tx.messages.revise(first.id, [Text("uno")], author=ADA, at=AT)
                tx.messages.revise(second.id, None, author=ADA, at=AT)
                tx.vectors.remove(agent.number, [1, 99])
                tx.vectors.remove(agent.number, [])

            await store.write(fill)
            scope = await store.read(scope_of, agent.number)
            assert (scope.version, scope.row_count) == (3, 1)
            assert await store.read(lambda tx: tx.vectors.list_changes(scope, after_version=1)) == [
                (0, 2, None),
                (1, 3, None),
            ]
            assert await store.read(vectors_in, agent.number) == {2: blob(2, 1)}
            assert await store.write(claimed_seqs) == [(agent.number, 0)]
            assert (await store.read(scope_of, archive.number)).version == 0

    async def test_signs_of_words_go_with_their_vector(self) -> None:
        """They are read by text, for the model of the scope; what is changed, removed or begun again has none."""
        async with self.open_store() as store:
            agent, archive = await store.write(self.add_embedded)
            numbers = agent.number, archive.number
            texts = [(number, seq) for number in numbers for seq in (0, 1, 2)]

            def fill(tx: Tx) -> None:
                self.say(tx, agent.id, "one", "two", "three")
                for text in "abc":
                    self.add_passage(tx, archive.id, text)
                rows = [(seq, blob(1, 0)) for seq in range(3)]
                for number in numbers:
                    tx.vectors.put(number, rows, model=MODEL, dimensions=2, words={0: b"\x80", 1: b"\x40\0", 2: None})

            await store.write(fill)
            assert await store.read(lambda tx: tx.vectors.words(MODEL, texts)) == dict(
                zip(texts, (b"\x80", b"\x40\0", None) * 2, strict=True)
            )
            assert await store.read(lambda tx: tx.vectors.words("other/model", texts)) == {}
            assert await store.read(lambda tx: tx.vectors.words(MODEL, [])) == {}

            def change(tx: Tx) -> None:
                tx.messages.revise(tx.messages.list(agent.id)[0].id, None, author=ADA, at=AT)
                tx.passages.put(replace(tx.passages.page(archive.id)[0], text="new"))
                tx.vectors.put(archive.number, [(1, blob(0, 1))], model=MODEL, dimensions=2)

            await store.write(change)
            assert await store.read(lambda tx: tx.vectors.words(MODEL, texts)) == {
                (agent.number, 1): b"\x40\0",
                (agent.number, 2): None,
                (archive.number, 1): None,
                (archive.number, 2): None,
            }
            await store.write(lambda tx: tx.vectors.restart(agent.number, MODEL))
            assert set(await store.read(lambda tx: tx.vectors.words(MODEL, texts))) == {
                (archive.number, 1),
                (archive.number, 2),
            }

    async def test_what_was_there_before_is_looked_through_in_bounded_steps(self) -> None:
        """A scope opened late, or begun again: every text without a vector of this model is queued, a few at a time."""
        async with self.open_store() as store:

            def late(tx: Tx) -> tuple[Agent, Archive]:
                agent, archive = self.add_agent(tx), self.add_archive(tx)
                self.say(tx, agent.id, "one", "two", self.draft("seen", role="tool"), "three")
                for text in "abcde":
                    self.add_passage(tx, archive.id, text)
                tx.vectors.open(agent.number, "agent", agent.id, MODEL)
                tx.vectors.open(archive.number, "archive", archive.id, MODEL)
                self.add_passage(tx, archive.id, "f")
                tx.vectors.put(archive.number, [(1, blob(1, 0))], model=MODEL, dimensions=2)
                return agent, archive

            agent, archive = await store.write(late)
            assert await store.read(lambda tx: tx.vectors.has_work(MODEL, at=AT))
            assert not await store.write(lambda tx: tx.vectors.fill("other/model", limit=2))
            steps = 0
            while await store.write(lambda tx: tx.vectors.fill(MODEL, limit=2)):
                steps += 1
            texts = [(agent.number, seq) for seq in (0, 1, 3)] + [(archive.number, seq) for seq in (0, 2, 3, 4, 5)]
            assert steps == 6  # 2 for three messages, 4 for six passages: the last one finds that there is no more
            assert await store.write(claimed_seqs) == sorted(texts)

            scope = await store.write(lambda tx: tx.vectors.restart(archive.number, "other/model"))
            assert (scope.model, scope.generation, scope.row_count, scope.dimensions) == ("other/model", 1, 0, None)
            assert await store.read(vectors_in, archive.number) == {}
            assert await store.read(lambda tx: tx.vectors.read(scope, [1])) == []
            while await store.write(lambda tx: tx.vectors.fill("other/model", limit=100)):
                pass
            claims = await store.write(claimed_seqs, model="other/model")
            assert claims == [(archive.number, seq) for seq in range(6)]
            row = (1, blob(1, 0, 0))
            await store.write(lambda tx: tx.vectors.put(archive.number, [row], model="other/model", dimensions=3))
            assert await store.read(vectors_in, archive.number) == {1: blob(1, 0, 0)}

    async def test_a_refused_text_is_told_and_kept_until_somebody_asks_again(self) -> None:
        """It is tried again when told so; given up, it is counted with its reason, and `refill` brings it back."""
        async with self.open_store() as store:
            _, archive = await store.write(self.add_embedded)
            number = archive.number
            await store.write(lambda tx: [self.add_passage(tx, archive.id, text) for text in "abc"])
            claims = await store.write(lambda tx: tx.vectors.claim(MODEL, at=AT, until=UNTIL, limit=9))

            def settle(tx: Tx) -> None:
                tx.vectors.fail(claims[0], "too \ud800 odd", claimed=UNTIL, again=None)
                tx.vectors.fail(claims[1], "not now", claimed=UNTIL, again=UNTIL)
                tx.vectors.drop(claims[2:], claimed=UNTIL)

            await store.write(settle)
            (counts,) = [one for one in await store.read(lambda tx: tx.vectors.counts()) if one.scope.number == number]
            assert (counts.waiting, counts.failed, counts.failure) == (1, 1, "too \ud800 odd")
            assert [one.seq for one in await store.write(late_claims)] == [1]
            await store.write(lambda tx: tx.vectors.refill(number))
            while await store.write(lambda tx: tx.vectors.fill(MODEL, limit=100)):
                pass
            assert await store.write(claimed_seqs) == [(number, 0), (number, 2)]

    async def test_a_scope_that_is_closed_leaves_nothing(self) -> None:
        """Nor does one whose agent or archive is deleted; what is written afterwards waits for nothing."""
        async with self.open_store() as store:
            agent, archive = await store.write(self.add_embedded)

            def fill(tx: Tx) -> None:
                self.say(tx, agent.id, "one", "two")
                self.add_passage(tx, archive.id, "a")
                for number in (agent.number, archive.number):
                    tx.vectors.put(number, [(0, blob(1, 0))], model=MODEL, dimensions=2)

            await store.write(fill)
            await store.write(lambda tx: tx.agents.delete(agent.id))
            _, empty = await store.write(self.add_embedded)
            await store.write(lambda tx: tx.archives.delete(empty.id))
            await store.write(lambda tx: tx.vectors.close(archive.number))
            await store.write(self.add_passage, archive.id, "b")
            assert [one.scope.owner_kind for one in await store.read(lambda tx: tx.vectors.counts())] == ["agent"]
            assert await store.write(claimed_seqs) == []
            await store.write(lambda tx: tx.vectors.open(archive.number, "archive", archive.id, MODEL))
            assert await store.read(vectors_in, archive.number) == {}

    async def test_vectors_are_of_their_organisation(self) -> None:
        """Another one neither sees, claims, changes nor closes them."""
        async with self.open_store() as store, self.open_store(org_id=OrgId("org-other")) as other:
            agent, archive = await store.write(self.add_embedded)
            number = archive.number
            await store.write(self.add_passage, archive.id, "a")
            assert await other.read(lambda tx: tx.vectors.scope(number)) is None
            assert await other.read(lambda tx: tx.vectors.counts()) == []
            assert not await other.read(lambda tx: tx.vectors.has_work(MODEL, at=AT))
            assert await other.write(claimed_seqs) == []
            refusals: Sequence[Callable[[Tx], object]] = (
                lambda tx: tx.vectors.open(agent.number, "agent", agent.id, MODEL),
                lambda tx: tx.vectors.put(number, [(0, blob(1))], model=MODEL, dimensions=1),
                lambda tx: tx.vectors.restart(number, MODEL),
                lambda tx: tx.vectors.refill(number),
            )
            for refused in refusals:
                with raises(NotFound):
                    await other.write(refused)
            await other.write(lambda tx: tx.vectors.close(number))
            assert await store.write(claimed_seqs) == [(number, 0)]

    async def test_vectors_are_remembered_by_content(self) -> None:
        """For their model only; many more than there is room for take each other's place."""
        async with self.open_store() as store:
            first, second = bytes(16), b"\1" * 16
            await store.write(
                lambda tx: tx.vectors.store_cache(MODEL, [(first, blob(1, 0), b"\1"), (second, blob(0, 1), None)])
            )
            assert await store.read(lambda tx: tx.vectors.load_cache(MODEL, [first, second, b"\2" * 16])) == {
                first: (blob(1, 0), b"\1"),
                second: (blob(0, 1), None),
            }
            assert await store.read(lambda tx: tx.vectors.load_cache("other/model", [first])) == {}
            rival = b"\0" * 8 + b"\3" * 8  # of the same slot as the first
            await store.write(lambda tx: tx.vectors.store_cache("other/model", [(rival, blob(1), None)]))
            assert await store.read(lambda tx: tx.vectors.load_cache(MODEL, [first, rival])) == {}
            assert await store.read(lambda tx: tx.vectors.load_cache("other/model", [rival])) == {
                rival: (blob(1), None)
            }


def late_claims(tx: Tx) -> Sequence[EmbeddingClaim]:
    return tx.vectors.claim(MODEL, at=LATER, until=LATER + timedelta(seconds=9), limit=9)
