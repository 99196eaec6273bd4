"""Archives and passages: counts and tags that agree with what is stored, and search within one archive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, OrgId, PassageId
from perdure.core.passages import Archive, Passage, PassageFilter, PassageState, TagMatch
from perdure.core.text.words import Matches, parse_query, part_clauses
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, AWKWARD, LATER, Contract, match_passages, raises
from tests.contracts.messages import WORDS

NOTES = ("alpha", "beta", "gamma", "delta", "kappa", "sigma")


class PassageContract(Contract):
    async def test_the_edge_of_a_page_and_the_words_behind_it(self) -> None:
        """In both directions, and within bounds."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)

            def add(tx: Tx) -> None:
                tx.passages.add([self.new_passage(archive.id, f"note {name}") for name in NOTES])

            def look(tx: Tx) -> list[object]:
                edge = tx.passages.find_edge
                return [
                    edge(archive.id, 2, above=None, below=None, newest_first=False),
                    edge(archive.id, 2, above=None, below=5, newest_first=True),
                    edge(archive.id, 9, above=None, below=None, newest_first=False),
                    tx.passages.seqs_with(
                        archive.id, part_clauses("note delta"), above=None, below=None, newest_first=False, limit=9
                    ),
                ]

            await store.write(add)
            found = await store.read(look)

        assert found == [2, 2, None, [3]]

    async def test_a_passage_comes_back_as_it_was_put(self) -> None:
        """Every field survives, whatever characters it holds, and its words find it."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)

            def add(tx: Tx, passage: Passage) -> Passage:
                return tx.passages.add([passage])[0]

            def get(tx: Tx, passage_id: PassageId) -> Passage:
                return tx.passages.get(passage_id)

            for index, text in enumerate(AWKWARD):
                passage = Passage(
                    id=PassageId(self.ids.new("passage")),
                    archive_id=archive.id,
                    text=f"{text} landmark{index}",
                    tags=(text, "b"),
                    metadata={text: [text, 1]},
                    source={"run_id": text},
                    created_at=AT,
                    occurred_at=AT - timedelta(days=400),
                )
                added = await store.write(add, passage)

                assert added == replace(passage, seq=index)
                assert await store.read(get, passage.id) == added
                assert await store.read(match_passages, archive.id, f"landmark{index}") == [index]
                tagged = PassageFilter(tags=(text,))
                assert await store.read(match_passages, archive.id, f"landmark{index}", where=tagged) == [index]

    async def test_an_archive_comes_back_as_it_was_put(self) -> None:
        """Every field survives, whatever characters it holds."""
        async with self.open_store() as store:
            org_id = await store.read(lambda tx: tx.org_id)

            def add(tx: Tx, archive: Archive) -> Archive:
                return tx.archives.add(archive)

            def get(tx: Tx, archive_id: ArchiveId) -> Archive:
                return tx.archives.get(archive_id)

            for text in AWKWARD:
                archive = Archive(
                    id=ArchiveId(self.ids.new("archive")),
                    org_id=org_id,
                    name=text,
                    description=text,
                    metadata={text: text},
                    created_at=AT,
                    updated_at=AT,
                )
                added = await store.write(add, archive)

                assert replace(added, number=0) == archive
                assert await store.read(get, archive.id) == added

    async def test_counts_and_tags_follow_every_change(self) -> None:
        """The archive knows how many passages it has and how often each tag is used, the most used first."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)
            for tags in (("red", "round", "red"), ("red",), ("blue",), ()):
                last = await store.write(self.add_passage, archive.id, "a thing", *tags)

            def look(tx: Tx) -> tuple[int, int, list[tuple[str, int]]]:
                now = tx.archives.get(archive.id)
                return now.passage_count, now.version, list(tx.archives.tags(archive.id))

            assert last.seq == 3
            assert await store.read(look) == (4, 4, [("red", 2), ("blue", 1), ("round", 1)])
            assert await store.read(lambda tx: tx.archives.tags(archive.id, limit=1)) == [("red", 2)]

            def delete_first(tx: Tx) -> None:
                tx.passages.delete(archive.id, [tx.passages.page(archive.id)[0].seq])

            await store.write(delete_first)
            assert await store.read(look) == (3, 5, [("blue", 1), ("red", 1)])

    async def test_a_deleted_passage_is_found_nowhere(self) -> None:
        """It is not listed, got or found any more, and its number is not given again."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)
            gone = await store.write(lambda tx: self.add_passage(tx, archive.id, "a walrus", "sea"))
            kept = await store.write(lambda tx: self.add_passage(tx, archive.id, "another walrus", "sea"))
            assert await store.write(lambda tx: tx.passages.delete(archive.id, [gone.seq])) == 1
            new = await store.write(lambda tx: self.add_passage(tx, archive.id, "a penguin"))

            assert new.seq == 2
            assert await store.read(lambda tx: tx.passages.page(archive.id)) == [kept, new]
            assert await store.read(match_passages, archive.id, "walrus") == [kept.seq]
            for _ in range(2):
                with raises(NotFound):
                    await store.read(lambda tx: tx.passages.get(gone.id))
            assert await store.write(lambda tx: tx.passages.delete(archive.id, [gone.seq, 99])) == 0

    async def test_passages_are_numbered_without_gaps(self) -> None:
        """Many tasks over two handles: every number once, and the count agrees."""
        async with self.open_store() as one, self.open_store() as other:
            archive = await one.write(self.add_archive)
            added = await asyncio.gather(
                *(
                    store.write(self.add_passage, archive.id, f"note {index}", "t")
                    for index in range(8)
                    for store in (one, other)
                )
            )

            assert sorted(passage.seq for passage in added) == list(range(16))
            assert (await one.read(lambda tx: tx.archives.get(archive.id))).passage_count == 16
            assert await one.read(lambda tx: tx.archives.tags(archive.id)) == [("t", 16)]

    async def test_passages_are_chosen_by_tags_and_dates(self) -> None:
        """Any or all of the tags, dates with both ends included, in search as in lists."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)
            day = timedelta(days=1)

            def fill(tx: Tx) -> None:
                for index, tags in enumerate((("red",), ("red", "round"), ("round",), ())):
                    self.add_passage(tx, archive.id, "a walrus", *tags, occurred_at=AT + index * day)

            await store.write(fill)
            cases: tuple[tuple[PassageFilter, list[int]], ...] = (
                (PassageFilter(), [0, 1, 2, 3]),
                (PassageFilter(tags=("red",)), [0, 1]),
                (PassageFilter(tags=("red", "round")), [0, 1, 2]),
                (PassageFilter(tags=("red", "round"), tag_match="all"), [1]),
                (PassageFilter(tags=("red", "red"), tag_match="all"), [0, 1]),
                (PassageFilter(tags=("absent",)), []),
                (PassageFilter(since=AT + day), [1, 2, 3]),
                (PassageFilter(until=AT + day), [0, 1]),
                (PassageFilter(tags=("round",), since=AT + day, until=AT + day), [1]),
            )
            for where, expected in cases:

                def list_seqs(tx: Tx, where: PassageFilter = where) -> tuple[list[int], list[int]]:
                    return (
                        [passage.seq for passage in tx.passages.page(archive.id, where=where)],
                        [
                            passage.seq
                            for passage in tx.passages.page(archive.id, where=where, newest_first=True, limit=9)
                        ],
                    )

                assert await store.read(match_passages, archive.id, "walrus", where=where) == expected, where
                assert await store.read(list_seqs) == (expected, expected[::-1]), where

    async def test_words_within_a_filter_of_few_passages(self) -> None:
        """Who knows how many the filter lets through gets the same candidates, and exact numbers of those that hold a
        word."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)

            def add(tx: Tx) -> None:
                for seq in range(600):
                    text = "a walrus" if seq % 6 else "a walrus and a seal"
                    self.add_passage(tx, archive.id, text, "blue" if seq % 2 else "red")

            await store.write(add)
            where, query = PassageFilter(tags=("red",)), parse_query("walrus seal")

            def matched(tx: Tx, rows: int | None) -> Matches:
                return tx.passages.match(archive.id, query, where=where, limit=120, rows=rows)

            known, unknown = await store.read(matched, 300), await store.read(matched, None)

            seals = list(range(594, -1, -6))
            rest = [seq for seq in range(598, -1, -2) if seq % 6]
            assert list(known.seqs) == list(unknown.seqs) == seals + rest[:20]
            assert (known.frequency, unknown.frequency[1]) == ([300, 100], 100)

    async def test_passages_come_in_pages(self) -> None:
        """A page begins after a number; the newest come newest first; `by_seqs` keeps the order asked for."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)
            for text in "abcde":
                await store.write(self.add_passage, archive.id, text)

            def look(tx: Tx) -> list[str]:
                pages = (
                    tx.passages.page(archive.id, limit=2),
                    tx.passages.page(archive.id, limit=2, above=1),
                    tx.passages.page(archive.id, newest_first=True, limit=2),
                    tx.passages.list_by_seqs(archive.id, [4, 99, 0]),
                    tx.passages.list_by_seqs(archive.id, []),
                )
                return ["".join(passage.text for passage in page) for page in pages]

            assert await store.read(look) == ["ab", "cd", "ed", "ea", ""]

    async def test_passages_of_all_languages_are_found(self) -> None:
        """The same words as in messages."""
        async with self.open_store() as store:
            wrong = []
            for text, query, is_found in WORDS:
                archive = await store.write(self.add_archive)
                await store.write(self.add_passage, archive.id, text)
                if bool(await store.read(match_passages, archive.id, query)) != is_found:
                    wrong.append((text, query))

            assert wrong == []

    async def test_search_stays_with_its_archive(self) -> None:
        """Another archive's passages are never found, nor are messages."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            mine, other = await store.write(self.add_archive), await store.write(self.add_archive)
            await store.write(self.say, agent.id, "a walrus")
            await store.write(self.add_passage, other.id, "a walrus")
            assert await store.read(match_passages, mine.id, "walrus") == []

            await store.write(self.add_passage, mine.id, "a walrus")
            assert await store.read(match_passages, mine.id, "walrus") == [0]

    async def test_pages_of_passages(self) -> None:
        """Between two numbers, from either end; a text is looked for as it is, in any case."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)
            other = await store.write(self.add_archive)
            for text in ("Alpha", "beta 100%", "gamma_delta", "ALPHA again", "epsilon"):
                await store.write(self.add_passage, archive.id, text)
            await store.write(self.add_passage, other.id, "alpha elsewhere")

            async def page(**asked: Any) -> list[int]:
                found = await store.read(lambda tx: tx.passages.page(archive.id, **asked))
                return [passage.seq for passage in found]

            assert await page() == [0, 1, 2, 3, 4]
            assert await page(newest_first=True, limit=2) == [4, 3]
            assert await page(above=0, below=4) == [1, 2, 3]
            assert await page(above=0, limit=1) == [1]
            assert await page(below=3, newest_first=True, limit=2) == [2, 1]
            assert await page(text="alpha") == [0, 3]
            assert await page(text="alpha", newest_first=True) == [3, 0]
            assert await page(text="%") == [1]
            assert await page(text="_") == [2]
            assert await page(text="nothing") == []
            for text in ("ПРИВЕТ ÉCOLE", "Straße ΑΘΗΝΑ"):
                await store.write(self.add_passage, archive.id, text)
            assert [await page(text=word) for word in ("привет", "école", "straße", "αθηνα")] == [[5], [5], [6], [6]]
            for text in ("ΣΊΣΥΦΟΣ", "Σίσυφος", "İZMİR"):
                await store.write(self.add_passage, archive.id, text)
            assert [await page(text=word) for word in ("σίσυφος", "ΣΊΣΥΦΟΣ", "izmir", "İZMİR")] == [
                *([7, 8], [7, 8]),
                *([9], [9]),
            ]

    async def test_many_passages_come_in_one_go(self) -> None:
        """They are numbered in the order given, and counts, tags and words follow."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)
            passages = [
                Passage(
                    id=PassageId(self.ids.new("passage")),
                    archive_id=archive.id,
                    text=f"walrus {name}",
                    tags=("sea", name),
                    created_at=AT,
                    occurred_at=AT,
                )
                for name in ("ann", "bob", "cyd")
            ]
            added = await store.write(lambda tx: tx.passages.add(passages))

            assert added == [replace(passage, seq=index) for index, passage in enumerate(passages)]
            assert await store.read(lambda tx: tx.passages.page(archive.id)) == added
            assert await store.read(match_passages, archive.id, "bob") == [1]
            assert (await store.read(lambda tx: tx.archives.tags(archive.id)))[0] == ("sea", 3)
            tagged = PassageFilter(tags=("cyd",))
            assert await store.read(lambda tx: tx.passages.seqs(archive.id, where=tagged)) == [2]
            assert (await store.read(lambda tx: tx.archives.get(archive.id))).passage_count == 3
            assert await store.write(lambda tx: tx.passages.add([])) == ()

    async def test_a_passage_can_be_changed(self) -> None:
        """Search finds the new text and not the old, and tags are counted anew; place and id stay."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)
            old = await store.write(self.add_passage, archive.id, "a walrus", "sea", "fat")
            new = replace(
                old, text="a penguin", tags=("sea", "slim"), metadata={"a": 1}, source={"b": 2}, occurred_at=LATER
            )
            assert await store.write(lambda tx: tx.passages.put(new)) == new

            assert await store.read(lambda tx: tx.passages.get(old.id)) == new
            assert await store.read(match_passages, archive.id, "walrus") == []
            assert await store.read(match_passages, archive.id, "penguin") == [old.seq]
            assert await store.read(lambda tx: tx.archives.tags(archive.id)) == [("sea", 1), ("slim", 1)]
            assert (await store.read(lambda tx: tx.archives.get(archive.id))).version == 2
            await store.write(lambda tx: tx.passages.delete(archive.id, [old.seq]))
            with raises(NotFound):
                await store.write(lambda tx: tx.passages.put(new))
            assert await store.read(lambda tx: tx.archives.tags(archive.id)) == []

    async def test_passages_are_selected_by_their_state(self) -> None:
        """A state is stored and counts as a change of the archive; texts, tags and words stay as they are."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                archive, other = self.add_archive(tx), self.add_archive(tx)
                one, two, three = (self.add_passage(tx, archive.id, "a walrus", "sea") for _ in range(3))
                assert tx.passages.states(archive.id) == {"active"}
                before = tx.archives.get(archive.id).version
                origin = {"at": AT.isoformat(), "uses": 2}
                tx.passages.put_states([])
                tx.passages.put_states(
                    [replace(two, state="faded", state_origin=origin), replace(three, state="archived", text="a seal")]
                )
                assert tx.archives.get(archive.id).version > before
                assert tx.passages.get(two.id) == replace(two, state="faded", state_origin=origin)
                assert tx.passages.get(three.id).text == "a walrus"
                assert tx.passages.states(archive.id) == {"active", "faded", "archived"}
                assert tx.passages.states(other.id) == {"active"}
                query = parse_query("walrus")
                cases: Sequence[tuple[tuple[PassageState, ...], list[int]]] = (
                    ((), [0, 1, 2]),
                    (("active",), [0]),
                    (("active", "faded"), [0, 1]),
                    (("archived",), [2]),
                    (("active", "faded", "archived"), [0, 1, 2]),
                )
                for states, expected in cases:
                    where = PassageFilter(states=states)
                    assert [one.seq for one in tx.passages.page(archive.id, where=where)] == expected
                    assert list(tx.passages.seqs(archive.id, where=replace(where, tags=("sea",)))) == expected
                    assert sorted(tx.passages.match(archive.id, query, where=where, limit=9).seqs) == expected
                    assert sorted(tx.passages.latest(archive.id, where=where, limit=9)) == expected
                assert tx.passages.list_merged(archive.id, one.id) == []
                tx.passages.put_states([replace(three, state="archived", state_origin={"into": one.id})])
                assert [same.seq for same in tx.passages.list_merged(archive.id, one.id)] == [three.seq]
                assert tx.passages.list_merged(archive.id, two.id) == []
                tx.passages.put(replace(three, text="a seal"))
                assert tx.passages.get(three.id).state == "archived"
                tx.passages.put_states([one, two, three])
                assert tx.passages.states(archive.id) == {"active"}
                with raises(NotFound):
                    tx.passages.put_states([replace(one, archive_id=ArchiveId("archive-none"))])

            await store.write(unit)

    async def test_uses_and_recalls_are_counted_apart(self) -> None:
        """Ranking reads uses alone; together they say whether a passage is still needed."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                archive = self.add_archive(tx)
                for _ in range(3):
                    self.add_passage(tx, archive.id, "a walrus")
                tx.passages.count(archive.id, [0, 99], "recalls")
                tx.passages.count(archive.id, [0, 1], "recalls")
                tx.passages.count(archive.id, [0], "uses")
                assert tx.passages.use_counts(archive.id, [0, 1, 2, 99]) == {0: 3, 1: 1}
                assert tx.passages.use_counts(archive.id, [1]) == {1: 1}
                (_, two, _) = tx.passages.page(archive.id)
                assert tx.passages.find_places([two.id, PassageId("passage-none")]) == {two.id: (archive.id, 1)}
                assert list(tx.passages.texts(archive.id, [0, 1, 2]).uses) == [1, 0, 0]

            await store.write(unit)

    async def test_texts_are_read_side_by_side_and_far_apart(self) -> None:
        """In the order asked for; numbers that there are not are left out."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)
            other = await store.write(self.add_archive)
            for _ in range(12):
                await store.write(self.add_passage, archive.id, "a walrus")
                await store.write(self.add_passage, other.id, "a penguin")

            def read(tx: Tx, seqs: list[int]) -> list[tuple[int, str]]:
                texts = tx.passages.texts(archive.id, seqs)
                return list(zip(texts.seqs, texts.texts, strict=True))

            for seqs in (list(range(12)), [9, 3, 6, 0], [4, 3, 2, 10], [11, 10, 12, 99], [7], [99], [5, 1, 2, 3, 9]):
                assert await store.read(read, seqs) == [(seq, "a walrus") for seq in seqs if seq < 12]

    async def test_what_a_search_reads_of_passages(self) -> None:
        """Texts with their times and origins in the order asked for, and how often each was shown."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)
            first = await store.write(self.add_passage, archive.id, "a walrus", occurred_at=LATER)
            second = await store.write(self.add_passage, archive.id, "a penguin")
            await store.write(lambda tx: tx.passages.put(replace(second, source={"file_id": "file-1"})))

            def use(tx: Tx, seqs: list[int]) -> None:
                tx.passages.count(archive.id, seqs, "uses")

            for seqs in ([first.seq], [first.seq, 99], []):
                await store.write(use, seqs)

            everything = PassageFilter()
            assert await store.read(lambda tx: tx.passages.latest(archive.id, where=everything, limit=9)) == [0, 1]
            assert await store.read(lambda tx: tx.passages.latest(archive.id, where=everything, limit=1)) == [0]
            until = PassageFilter(until=AT)
            assert await store.read(lambda tx: tx.passages.latest(archive.id, where=until, limit=9)) == [1]
            texts = await store.read(lambda tx: tx.passages.texts(archive.id, [1, 99, 0]))
            assert list(zip(texts.seqs, texts.texts, texts.origins, texts.uses, strict=True)) == [
                (1, "a penguin", "file-1", 0),
                (0, "a walrus", None, 2),
            ]
            assert texts.occurred_at == [AT.timestamp(), LATER.timestamp()]
            assert [texts.passage(index) for index in (0, 1)] == await store.read(
                lambda tx: tx.passages.list_by_seqs(archive.id, [1, 0])
            )
            assert not len(await store.read(lambda tx: tx.passages.texts(archive.id, [])))
            assert not len(await store.read(lambda tx: tx.passages.texts(archive.id, [99])))

    async def test_words_are_looked_for_among_the_passages_of_a_tag(self) -> None:
        """However many others hold them, and after the tags have changed."""
        async with self.open_store() as store:
            archive = await store.write(self.add_archive)
            old = await store.write(self.add_passage, archive.id, "a walrus", "rare", "Größe 10")

            def add(tx: Tx, passages: list[Passage]) -> None:
                tx.passages.add(passages)

            for _ in range(3):
                passages = [replace(old, id=PassageId(self.ids.new("passage")), tags=("usual",)) for _ in range(100)]
                await store.write(add, passages)

            async def find(*tags: str, tag_match: TagMatch = "any") -> list[int]:
                where = PassageFilter(tags=tags, tag_match=tag_match)
                return await store.read(match_passages, archive.id, "walrus", where=where, limit=9)

            assert await find("rare") == [0]
            assert await find("rare", "Größe 10", tag_match="all") == [0]
            assert await find("rare", "usual", tag_match="all") == []
            assert len(await find("usual")) == 9
            await store.write(lambda tx: tx.passages.put(replace(old, tags=("other",))))
            assert await find("rare") == []
            assert await find("other") == [0]

    async def test_archives_are_listed_changed_and_deleted(self) -> None:
        """In order of creation, by agent and by name; one that has passages is not deleted, and one that has none is
        gone from its agents too."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            one, two, three = [await store.write(self.add_archive) for _ in range(3)]
            changed = replace(two, name="maps", description="of the sea", metadata={"a": 1}, updated_at=LATER)

            def change(tx: Tx) -> None:
                tx.archives.put(changed)
                for archive in (three, two):
                    tx.archives.attach(agent.id, archive.id)

            await store.write(change)

            async def ids(**asked: Any) -> list[ArchiveId]:
                return [archive.id for archive in await store.read(lambda tx: tx.archives.list(**asked))]

            assert await store.read(lambda tx: tx.archives.get(two.id)) == changed
            assert await ids() == [one.id, two.id, three.id]
            assert await ids(newest_first=True, limit=1) == [three.id]
            assert await ids(above=one.number, below=three.number) == [two.id]
            assert await ids(agent_id=agent.id) == [two.id, three.id]
            assert await ids(name="maps") == [two.id]

            passage = await store.write(self.add_passage, two.id, "a walrus")
            with raises(InvalidInput):
                await store.write(lambda tx: tx.archives.delete(two.id))
            await store.write(lambda tx: tx.passages.delete(two.id, [passage.seq]))
            await store.write(lambda tx: tx.archives.delete(two.id))
            await store.write(lambda tx: tx.archives.detach(agent.id, three.id))
            await store.write(lambda tx: tx.archives.detach(agent.id, three.id))
            assert await ids() == [one.id, three.id]
            assert await store.read(lambda tx: tx.archives.list_by_agent(agent.id)) == []
            await store.write(lambda tx: tx.archives.attach(agent.id, one.id))
            assert await store.read(lambda tx: tx.archives.list_agents(one.id, limit=9)) == [agent.id]
            assert await store.write(lambda tx: tx.archives.detach_all(one.id, limit=9)) == 1
            assert await store.read(lambda tx: tx.archives.list_agents(one.id, limit=9)) == []
            assert await store.write(lambda tx: tx.archives.detach_all(one.id, limit=9)) == 0
            assert await store.read(lambda tx: tx.archives.list_by_agent(agent.id)) == []
            with raises(NotFound):
                await store.write(lambda tx: tx.archives.put(changed))

    async def test_archives_stand_in_the_order_they_were_attached(self) -> None:
        """Several agents may share one; attaching twice is no error."""
        async with self.open_store() as store:
            ada, bob = await store.write(self.add_agent, "ada"), await store.write(self.add_agent, "bob")
            first, second = await store.write(self.add_archive), await store.write(self.add_archive)

            def attach(tx: Tx) -> None:
                for agent, archive in ((ada, second), (ada, first), (bob, first), (ada, second)):
                    tx.archives.attach(agent.id, archive.id)

            await store.write(attach)

            def look(tx: Tx) -> list[list[Archive]]:
                return [list(tx.archives.list_by_agent(agent.id)) for agent in (ada, bob)]

            assert await store.read(look) == [[second, first], [first]]

    async def test_memory_is_blocks_and_passages_of_all_archives(self) -> None:
        """What an agent remembers, at a glance: versions of its blocks and how many passages; an empty one's too."""
        async with self.open_store() as store:
            ada, bob = await store.write(self.add_agent, "ada"), await store.write(self.add_agent, "bob")
            first, second = await store.write(self.add_archive), await store.write(self.add_archive)

            def fill(tx: Tx) -> None:
                for archive in (first, second):
                    tx.archives.attach(ada.id, archive.id)
                    self.add_passage(tx, archive.id, "a walrus")
                self.add_passage(tx, second.id, "a seal")

            await store.write(fill)
            human, persona = [
                await store.write(self.add_block, label, agent_id=ada.id) for label in ("human", "persona")
            ]
            await store.write(lambda tx: tx.blocks.put(replace(persona, value="new"), expected=0, author=ADA, at=AT))

            def memory(tx: Tx, agent_id: AgentId) -> tuple[Mapping[str, int], int, bool]:
                opening = tx.conversations.get_state(agent_id, 0)
                return opening.blocks, opening.passages, bool(opening.has)

            assert await store.read(memory, ada.id) == ({human.id: 0, persona.id: 1}, 3, False)
            assert await store.read(memory, bob.id) == ({}, 0, False)

    async def test_an_unknown_archive_takes_nothing(self) -> None:
        """Neither passages nor agents go to an archive that is not there, nor does an archive to an unknown agent."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            archive = await store.write(self.add_archive)
            nowhere = ArchiveId(self.ids.new("archive"))
            units: tuple[Callable[[Tx], Any], ...] = (
                lambda tx: self.add_passage(tx, nowhere, "a walrus"),
                lambda tx: tx.archives.attach(agent.id, nowhere),
                lambda tx: tx.archives.attach(AgentId(self.ids.new("agent")), archive.id),
                lambda tx: tx.archives.get(nowhere),
            )
            for unit in units:
                with raises(NotFound):
                    await store.write(unit)

    async def test_ids_that_are_taken_are_known(self) -> None:
        """With their archives; not those of another organisation."""
        async with self.open_store() as store, self.open_store(org_id=OrgId("org-other")) as other:
            archive = await store.write(self.add_archive)
            passage = await store.write(self.add_passage, archive.id, "tea")
            ids = [passage.id, PassageId(self.ids.new("passage"))]

            assert await store.read(lambda tx: tx.passages.find_places(ids)) == {passage.id: (archive.id, 0)}
            assert await other.read(lambda tx: tx.passages.find_places(ids)) == {}
