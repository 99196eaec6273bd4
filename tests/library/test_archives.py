"""Archives as programs use them: made, filled, shared, changed and emptied."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput, NewPassage, NotFound
from perdure.core.passages import PassageFilter
from perdure.domain import values
from perdure.domain.archives.units import Selection, delete_selected, select_seqs
from perdure.library.memory import archives as archives_module
from tests.support.library import open_async, open_sync

NIGHT = "a walrus\0 and half a \ud83d pair"


def test_a_text_is_a_passage(tmp_path: Path) -> None:
    """Where a passage is asked for, a text alone will do."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent("ann")
        passage, _ = agent.insert_passage("The hive is blue.")
        with pytest.raises(InvalidInput, match="5 is not a passage"):
            agent.insert_passage(5)  # type: ignore[arg-type]

        assert passage.text == "The hive is blue."


def test_an_archive_is_shared_between_agents(tmp_path: Path) -> None:
    """What is in it all of them find, until it is taken from them; their own come first."""
    with open_sync(tmp_path / "agents.db") as perdure:
        ann, bob = perdure.create_agent("ann"), perdure.create_agent("bob")
        own = ann.archive("My tea is green.")
        shared = perdure.archives.create("shared", description="for all", metadata={"team": "red"})
        for agent in (ann, bob):
            agent.archives.attach(shared.id)
        passage = shared.insert(
            "The tea house is in Turin.", tags=["place"], metadata={"stars": 4}, source={"url": "u"}
        )

        assert [archive.id for archive in ann.archives.list()] == [own.archive_id, shared.id]
        assert {hit.passage.id for hit in ann.search_archive("tea")} == {own.id, passage.id}
        assert [hit.passage for hit in bob.search_archive("tea")] == [passage]
        assert bob.archive("Mine too.").archive_id == shared.id
        bob.archives.detach(shared.id)
        assert bob.search_archive("tea") == []
        assert [one.text for one in shared.passages()] == ["The tea house is in Turin.", "Mine too."]


def test_archives_are_found_changed_and_deleted(tmp_path: Path) -> None:
    """By name the newest, by id that one; the object stays as it was looked up."""
    with open_sync(tmp_path / "agents.db") as perdure:
        first, second = perdure.archives.create("notes"), perdure.archives.create("notes")
        agent = perdure.create_agent()
        first.attach_to(agent.id)
        changed = first.update(name="maps", description=None, metadata={"a": 1})

        assert perdure.archives.get("notes").id == second.id
        assert perdure.archives.get(first.id).info == changed.info
        assert (first.name, changed.name, changed.info.metadata) == ("notes", "maps", {"a": 1})
        assert [one.id for one in perdure.archives.list()] == [first.id, second.id]
        assert [one.id for one in perdure.archives.list(after=first.id)] == [second.id]
        assert [one.id for one in perdure.archives.list(name="maps")] == [first.id]
        changed.delete()
        assert agent.archives.list() == []
        with pytest.raises(NotFound, match="'notes'"):
            perdure.archives.get("maps")
        with pytest.raises(NotFound):
            first.insert("x")


def test_many_passages_are_all_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go in batches and keep their order; one that can't be stored leaves none behind."""
    monkeypatch.setattr(values, "BATCH", 2)
    with open_sync(tmp_path / "agents.db") as perdure:
        archive = perdure.archives.create("notes")
        when = datetime(2020, 1, 1, tzinfo=UTC)
        added = archive.insert_many(["a", NewPassage(text=NIGHT, tags=[" b ", ""], occurred_at=when), "c", "d", "e"])

        assert [(one.text, one.seq) for one in added] == [("a", 0), (NIGHT, 1), ("c", 2), ("d", 3), ("e", 4)]
        assert (added[1].tags, added[1].occurred_at) == (("b",), when)
        assert archive.passages() == added
        assert archive.passage(added[3].id) == added[3]
        with pytest.raises(InvalidInput, match="passage 4"):
            archive.insert_many(["f", "g", "h", "i", " "])
        assert archive.insert_many([]) == []
        assert len(archive.passages()) == 5


def test_a_vector_needs_an_archive_with_vectors(tmp_path: Path) -> None:
    """A passage with a vector of its own is refused where nothing can be compared with it, and nothing is stored."""
    with open_sync(tmp_path / "agents.db") as perdure:
        archive = perdure.archives.create("notes")

        with pytest.raises(InvalidInput, match="embedding has 2 numbers"):
            archive.insert_many([NewPassage(text="a"), NewPassage(text="b", embedding=[1.0, 0.0])])
        assert archive.passages() == []


def test_a_passage_changes_in_its_place(tmp_path: Path) -> None:
    """What is not given stays; search finds what it says now; others can't reach it."""
    with open_sync(tmp_path / "agents.db") as perdure:
        ann, bob = perdure.create_agent("ann"), perdure.create_agent("bob")
        passage = ann.archive("The key is under the pot.", tags=["home"])
        ann.archive("The pot is blue.")
        changed = ann.update_passage(passage.id, text="The key is in the shed.")

        assert (changed.tags, changed.seq) == (("home",), passage.seq)
        assert [hit.passage.text for hit in ann.search_archive("shed")] == ["The key is in the shed."]
        assert [hit.passage.text for hit in ann.search_archive("pot")] == ["The pot is blue."]
        (archive,) = ann.archives.list()
        assert archive.update_passage(passage.id, tags=["key"], metadata={"n": 1}, source={"by": "me"}).tags == ("key",)
        with pytest.raises(NotFound):
            bob.update_passage(passage.id, text="x")
        with pytest.raises(NotFound):
            perdure.archives.create("other").update_passage(passage.id, text="x")
        archive.delete_passage(passage.id)
        assert [one.text for one in archive.passages()] == ["The pot is blue."]


def test_what_is_selected_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By text in any case, tags and times together; a dry run only counts."""
    monkeypatch.setattr(archives_module, "BATCH", 3)
    with open_sync(tmp_path / "agents.db") as perdure:
        archive = perdure.archives.create("notes")
        new = [
            NewPassage(
                text=f"Draft {day}" if day % 2 else f"Note {day}",
                tags=["odd"] if day % 2 else [],
                occurred_at=datetime(2024, 1, day, tzinfo=UTC),
            )
            for day in range(1, 21)
        ]
        archive.insert_many(new)

        assert archive.delete_where(text="draft", dry_run=True) == 10
        assert archive.delete_where(text="DRAFT", tags=["odd"], since=new[10].occurred_at) == 5
        assert archive.delete_where(until=new[9].occurred_at) == 10
        assert [one.text for one in archive.passages()] == [f"Note {day}" for day in (12, 14, 16, 18, 20)]
        assert archive.delete_where(text="100%") == 0


@pytest.mark.parametrize(
    ("wrong", "error_text"),
    [
        (lambda archives, one: archives.create(" "), "not empty"),
        (lambda archives, one: archives.create(5), "5"),
        (lambda archives, one: archives.create("x", description=5), "description"),
        (lambda archives, one: archives.create("x", metadata=[1]), "metadata"),
        (lambda archives, one: archives.list(limit=0), "limit"),
        (lambda archives, one: one.update(colour="red"), "colour"),
        (lambda archives, one: one.insert(" "), "empty"),
        (lambda archives, one: one.insert("x" * 1_000_001), "1,000,000"),
        (lambda archives, one: one.insert(5), "5"),
        (lambda archives, one: one.insert("x", tags="home"), "home"),
        (lambda archives, one: one.insert("x", metadata={"a": {1}}), "metadata"),
        (lambda archives, one: one.insert("x", occurred_at=datetime(2024, 1, 1)), "zone"),
        (lambda archives, one: one.insert_many("text"), "list"),
        (lambda archives, one: one.insert_many([5]), "5"),
        (lambda archives, one: one.delete_where(), "delete the archive"),
        (lambda archives, one: one.delete_where(text=5), "text"),
        (lambda archives, one: one.passages(limit=10_001), "limit"),
        (lambda archives, one: one.passages(tag_match="some"), "tag_match"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, wrong: Callable[[Any, Any], Any], error_text: str) -> None:
    """Each is named, and nothing is written."""
    with open_sync(tmp_path / "agents.db") as perdure:
        archive = perdure.archives.create("notes")
        with pytest.raises(InvalidInput, match=error_text):
            wrong(perdure.archives, archive)

        assert archive.passages() == []
        assert len(perdure.archives.list()) == 1


async def test_what_no_longer_fits_is_not_deleted(tmp_path: Path) -> None:
    """Each batch looks again inside its own write: a passage changed since it was selected stays."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        archive = await perdure.archives.create("notes")
        kept, gone = await archive.insert_many([NewPassage(text=text, tags=["old"]) for text in ("a", "b")])
        selection = Selection(where=PassageFilter(tags=("old",)))
        store = perdure.app.store
        seqs = await store.read(select_seqs, archive.id, selection, limit=500)
        await archive.update_passage(kept.id, tags=["new"])

        assert seqs == [kept.seq, gone.seq]
        assert await store.write(delete_selected, archive.id, selection, seqs, at=datetime.now(UTC)) == (1, seqs[-1])
        assert [one.id for one in await archive.passages()] == [kept.id]


async def test_tags_are_looked_for_as_they_are_kept(tmp_path: Path) -> None:
    """Space around them is not theirs; an empty one no passage has."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        archive = await perdure.archives.create("notes")
        kept = await archive.insert("tea", tags=[" drink "])
        await archive.insert("tea too")

        for tags in (["drink"], [" drink"], ["drink "]):
            assert await archive.passages(tags=tags, tag_match="all") == [kept]
            assert [hit.passage for hit in await archive.search("tea", tags=tags)] == [kept]
        assert await archive.search("tea", tags=[" "]) == []
        assert await archive.delete_where(text="tea", tags=[" "]) == 0


async def test_an_archive_deleted_meanwhile_is_left_out_of_a_search(tmp_path: Path) -> None:
    """Unless it was asked for by name: then it is missed."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        gone, there = await perdure.archives.create("gone"), await perdure.archives.create("there")
        kept = await there.insert("tea")
        await gone.delete()
        search = perdure.app.ports.search
        for text in ("tea", ""):
            hits = await search.passages([gone.id, there.id], text, skip_deleted=True)
            assert [hit.passage for hit in hits] == [kept]
            with pytest.raises(NotFound):
                await search.passages([gone.id, there.id], text)
