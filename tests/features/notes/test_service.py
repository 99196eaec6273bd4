"""The notes of an agent from the library: written, found, changed, put away, reviewed, within their limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import Agent, Perdure
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import PassageId
from perdure.domain.archives.passages import NewPassage
from perdure.features.notes import units
from perdure.features.notes.units import NOTES_MAX
from perdure.testing import ScriptedModel
from tests.features.notes.examples import KINDS, fields_of, title_of
from tests.support.library import open_sync
from tests.support.two_apps import STORES, address_of, two_apps


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "perdure.db") as opened:
        yield opened


@pytest.fixture
def agent(store: Perdure) -> Agent:
    return store.create_agent("ann")


@pytest.mark.parametrize("kind", KINDS)
def test_a_note_of_each_kind_is_written_read_found_and_listed(agent: Agent, kind: str) -> None:
    note, correction = agent.notes.add(kind, title_of(kind), fields_of(kind), tags=["shop"])
    agent.notes.add("doc", "another", {"text": "Something else."})

    assert (note.kind, note.title, note.fields, note.tags) == (kind, title_of(kind), fields_of(kind), ("shop",))
    assert list(note.fields) == list(fields_of(kind))
    assert agent.notes.get(note.id) == note
    assert note in agent.notes.list(kind=kind)
    assert agent.notes.search(f"{kind} {list(fields_of(kind))[-1]} text", kind=kind)[0].note == note
    assert agent.undo(correction.number).restored
    assert [one.title for one in agent.notes.list()] == ["another"]


def test_an_edit_changes_what_it_names_and_keeps_the_rest(store: Perdure, agent: Agent) -> None:
    note, _ = agent.notes.add("error", "the tent", {"happened": "it fell", "cause": "wind"}, tags=["camp"])
    agent.update_passage(note.id, metadata={"kind": "error", "owner": "ben"})
    edited, correction = agent.notes.edit(note.id, fields={"cause": "", "solution": "a rope"})

    assert edited.fields == {"happened": "it fell", "solution": "a rope"}
    assert (edited.title, edited.tags, edited.created_at) == (note.title, note.tags, note.created_at)
    assert edited.changed_at > note.changed_at
    assert agent.passage(note.id).metadata["owner"] == "ben"
    agent.undo(correction.number)
    assert agent.notes.get(note.id).fields == note.fields
    with pytest.raises(InvalidInput, match="'happened' is empty"):
        agent.notes.edit(note.id, fields={"happened": ""})
    with pytest.raises(InvalidInput, match="fields is 'x'"):
        agent.notes.edit(note.id, fields="x")  # type: ignore[arg-type]
    assert agent.notes.get(note.id).fields == note.fields


@pytest.mark.parametrize("store", STORES)
async def test_two_apps_that_change_different_fields_at_once_lose_nothing(tmp_path: Path, store: str) -> None:
    fields, address = list(fields_of("error")), await address_of(store, tmp_path)
    async with two_apps(address, ScriptedModel()) as (first, second):
        agent = await first.create_agent("ann")
        note, _ = await agent.notes.add("error", "the tent", fields_of("error"))
        writers = [first.agent_of(agent.id).notes, second.agent_of(agent.id).notes]
        for number in range(5):
            await asyncio.gather(
                *(
                    writers[place % 2].edit(note.id, fields={name: f"{name} {number}"})
                    for place, name in enumerate(fields)
                )
            )
        await asyncio.gather(*(writers[one % 2].add("doc", str(one), {"text": "x"}) for one in range(20)))
        found = await agent.notes.get(note.id)
        titles = [one.title for one in await agent.notes.list(kind="doc")]

    assert found.fields == {name: f"{name} 4" for name in fields}
    assert sorted(titles, key=int) == [str(one) for one in range(20)]


@pytest.mark.slow
def test_an_agent_has_five_hundred_notes_and_room_for_more_once_some_are_archived(agent: Agent) -> None:
    ids = [agent.notes.add("doc", str(one), {"text": "x"})[0].id for one in range(NOTES_MAX)]
    with pytest.raises(InvalidInput, match="there are 500 notes, the limit is 500: archive at least 1 "):
        agent.notes.add("doc", "one more", {"text": "x"})
    assert agent.notes.count() == NOTES_MAX

    agent.notes.archive(ids[0])
    agent.notes.add("doc", "one more", {"text": "x"})
    with pytest.raises(InvalidInput, match="the limit is 500"):
        agent.notes.restore(ids[0])
    assert not agent.notes.restore(ids[1]).is_archived  # it was not archived
    agent.notes.delete(ids[2])
    assert not agent.notes.restore(ids[0]).is_archived
    assert agent.notes.edit(ids[3], title="changed")[0].title == "changed"


def test_a_note_that_is_undeleted_may_pass_the_limit(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost for want of room; the next one that is added is told how many have to go."""
    monkeypatch.setattr(units, "NOTES_MAX", 2)
    ids = [agent.notes.add("doc", str(one), {"text": "x"})[0].id for one in range(2)]
    deleted = agent.notes.delete(ids[0])
    agent.notes.add("doc", "2", {"text": "x"})
    agent.undo(deleted.number)

    assert sorted(one.title for one in agent.notes.list()) == ["0", "1", "2"]
    with pytest.raises(InvalidInput, match="there are 3 notes, the limit is 2: archive at least 2 "):
        agent.notes.add("doc", "3", {"text": "x"})


def test_a_note_is_changed_and_brought_back_whole_or_not_at_all(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit its title stays too."""
    monkeypatch.setattr(units, "NOTES_MAX", 2)
    away, _ = agent.notes.add("doc", "away", {"text": "x"})
    agent.notes.archive(away.id)
    others = [agent.notes.add("doc", str(one), {"text": "x"})[0].id for one in range(2)]
    with pytest.raises(InvalidInput, match="the limit is 2"):
        agent.notes.edit(away.id, title="changed", archived=False)
    assert (agent.notes.get(away.id).title, agent.notes.get(away.id).is_archived) == ("away", True)

    agent.notes.archive(others[0])
    after, _ = agent.notes.edit(away.id, title="changed", archived=False)
    assert (after.title, after.is_archived) == ("changed", False)
    assert agent.notes.edit(away.id, title="again", archived=True)[0].is_archived


@pytest.mark.parametrize("store", STORES)
async def test_two_writers_at_once_do_not_pass_the_limit(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "NOTES_MAX", 5)
    async with two_apps(await address_of(store, tmp_path), ScriptedModel()) as (first, second):
        agent = await first.create_agent("ann")
        writers = [first.agent_of(agent.id).notes, second.agent_of(agent.id).notes]
        done = await asyncio.gather(
            *(writers[one % 2].add("doc", str(one), {"text": "x"}) for one in range(20)), return_exceptions=True
        )
        count = await agent.notes.count()

    assert count == 5 and sum(isinstance(one, InvalidInput) for one in done) == 15


def test_other_passages_with_the_tag_are_no_notes_and_hide_none(agent: Agent) -> None:
    """Their metadata may hold anything."""
    agent.notes.add("doc", "mine", {"text": "a quince tree"})
    wrong: list[dict[str, object]] = [{}, {"kind": "poem"}, {"kind": ["doc"]}, {"kind": None}]
    for number in range(60):
        new = NewPassage(text=f"a quince tree {number}", tags=("note", "doc"), metadata=wrong[number % len(wrong)])
        agent.insert_passage(new)

    assert [one.title for one in agent.notes.list(limit=1)] == ["mine"]
    assert [hit.note.title for hit in agent.notes.search("quince", limit=1)] == ["mine"]
    assert agent.notes.count() == 1
    assert [one.text for one in agent.notes.list_other_passages(2)] == ["a quince tree 59", "a quince tree 58"]
    other = agent.passages(limit=2)[1]
    with pytest.raises(NotFound, match="that passage is not a note"):
        agent.notes.get(other.id)
    with pytest.raises(NotFound, match="that passage is not a note"):
        agent.notes.edit(other.id, title="mine now")
    assert agent.passage(other.id) == other


@pytest.mark.parametrize("changed_at", ["yesterday", "2026-01-01T00:00:00", 7, None, ["x"]])
def test_a_note_whose_time_somebody_spoilt_has_the_time_of_its_passage(agent: Agent, changed_at: object) -> None:
    note, _ = agent.notes.add("plan", "mine", {"goal": "x"})
    agent.update_passage(note.id, metadata={"kind": "plan", "changed_at": changed_at})

    assert agent.notes.list()[0].changed_at == note.created_at
    assert agent.notes.review() == []


def test_a_note_whose_text_a_person_edited_is_still_a_note(agent: Agent) -> None:
    note, _ = agent.notes.add("error", "the tent", {"happened": "it fell"})
    agent.update_passage(note.id, text="The pole broke.\r\n\r\n## Cause\r\nRust.")
    found = agent.notes.get(note.id)
    edited, _ = agent.notes.edit(note.id, fields={"solution": "Paint."})

    assert (found.title, found.fields) == ("The pole broke.", {"happened": "The pole broke.", "cause": "Rust."})
    assert edited.text.startswith(
        "# The pole broke.\n\n## Happened\n\nThe pole broke.\n\n## Cause\n\nRust.\n\n## Solution"
    )


def test_a_tag_that_is_the_name_of_another_kind_is_refused(agent: Agent) -> None:
    note, _ = agent.notes.add("error", "a", {"happened": "x"}, tags=["note", "error", " camp "])
    assert note.tags == ("camp",)
    with pytest.raises(InvalidInput, match="tag 'plan' is the name of a kind"):
        agent.notes.add("error", "b", {"happened": "x"}, tags=["plan"])
    with pytest.raises(InvalidInput, match="tags are 'camp'"):
        agent.notes.add("error", "b", {"happened": "x"}, tags="camp")
    agent.update_passage(note.id, tags=["note", "error", "plan"])
    assert agent.notes.list(kind="plan") == []
    assert [one.title for one in agent.notes.list(kind="error")] == ["a"]


def test_a_note_is_found_by_the_beginning_of_its_id_or_by_its_title(agent: Agent) -> None:
    first, _ = agent.notes.add("doc", "same", {"text": "x"})
    second, _ = agent.notes.add("doc", "same", {"text": "x"})
    third, _ = agent.notes.add("doc", "other", {"text": "x"})
    agent.notes.archive(third.id)

    assert agent.notes.find(first.id) == agent.notes.find(first.id[:20]) == first
    assert agent.notes.find(second.id.partition("-")[2]) == second
    assert agent.notes.find("other").id == third.id
    with pytest.raises(InvalidInput, match="'same' is the title of 2 notes"):
        agent.notes.find("same")
    for text in ("", " ", "nothing", "p", "passage-", first.id[:11], "passage-00000000-0000-4000-8000-000000000000"):
        with pytest.raises(NotFound):
            agent.notes.find(text)


def test_a_review_lists_what_nobody_changed_for_long_the_oldest_first(store: Perdure, agent: Agent) -> None:
    days = {"handoff": 6, "plan": 15, "decision": 179, "error": 181, "snippet": 364}
    for kind, age in days.items():
        note, _ = agent.notes.add(kind, kind, fields_of(kind))
        at = note.created_at - timedelta(days=age, minutes=1)
        agent.update_passage(note.id, metadata={"kind": kind, "changed_at": at.isoformat()})

    assert [one.title for one in agent.notes.review()] == ["error", "plan"]
    assert [one.title for one in agent.notes.review(days=100, limit=2)] == ["snippet", "error"]
    assert len(agent.notes.review(days=0)) == 5
    kept = agent.notes.keep(agent.notes.find("error").id)
    agent.notes.archive(agent.notes.find("plan").id)
    assert kept.changed_at > note.created_at
    assert agent.notes.review() == []
    for wrong in (-1, 1.5, True):
        with pytest.raises(InvalidInput, match="days is"):
            agent.notes.review(days=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, 10_001, "5", None])
def test_a_limit_that_is_none_is_refused(agent: Agent, limit: int) -> None:
    for read in (
        lambda: agent.notes.list(limit=limit),
        lambda: agent.notes.search("x", limit=limit),
        lambda: agent.notes.review(limit=limit),
    ):
        with pytest.raises(InvalidInput, match="limit"):
            read()


def test_notes_of_an_agent_that_is_gone_are_not_found(store: Perdure, agent: Agent) -> None:
    note, _ = agent.notes.add("doc", "mine", {"text": "x"})
    other = store.create_agent("ben")
    with pytest.raises(NotFound):
        other.notes.get(note.id)
    agent.delete()
    for call in (
        lambda: agent.notes.list(),
        lambda: agent.notes.add("doc", "x", {"text": "x"}),
        lambda: agent.notes.search("x"),
    ):
        with pytest.raises(NotFound):
            call()


def test_half_a_surrogate_pair_changes_nothing(agent: Agent) -> None:
    """It has no UTF-8; what is stored can be read again."""
    note, _ = agent.notes.add("doc", "a \ud800 title", {"text": "b \udfff text"})

    assert agent.notes.get(note.id) == note
    assert len(agent.notes.list()) == 1
    assert PassageId(note.id) == agent.passages(limit=1)[0].id
