"""Notes in the dashboard: each kind written, found, changed field by field, put away, reviewed and deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from perdure import AsyncAgent, AsyncPerdure
from tests.features.notes.examples import KINDS, fields_of, title_of
from tests.ui.browser import dashboard, tags_of, text_of, undo
from tests.ui.test_pages import HOSTILE


async def page_of(client: httpx.AsyncClient, agent: AsyncAgent, **query: str) -> Any:
    """The JSON of the page of notes."""
    return (await client.get(f"/agents/{agent.id}/notes", params={**query, "format": "json"})).json()


async def titles(client: httpx.AsyncClient, agent: AsyncAgent, **query: str) -> list[str]:
    """The titles of the notes that the page shows."""
    return [note["title"] for note in (await page_of(client, agent, **query))["notes"]]


async def make_old(library: AsyncPerdure, agent: AsyncAgent, note_id: str, kind: str, days: int) -> None:
    """Have a note look as if nobody had changed it for so many days."""
    at = library.app.ports.clock.now() - timedelta(days=days)
    await agent.update_passage(note_id, metadata={"kind": kind, "changed_at": at.isoformat()})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_note_of_each_kind_is_written_and_changed_by_the_forms_of_the_page(kind: str) -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        where, fields = f"/agents/{agent.id}/notes", fields_of(kind)
        form = tags_of((await client.get(where, params={"new": kind})).text)
        names = [str(values["name"]) for tag, values in form if tag == "textarea"]
        form_of_page = {"kind": kind, "title": title_of(kind), "tags": "shop, web", **fields}
        page = await client.post(where, data=form_of_page)
        (note,) = await agent.notes.list()
        await client.post(f"{where}/{note.id}", data={"title": "other", **fields, names[-1]: "new text"})
        edited = await agent.notes.get(note.id)

    assert names == list(fields)
    assert (note.kind, note.title, note.fields, note.tags) == (kind, title_of(kind), fields, ("shop", "web"))
    assert page.status_code == 200 and f"{kind} {names[-1]} text." in text_of(page.text)
    assert (edited.title, edited.fields) == ("other", {**fields, names[-1]: "new text"})


async def test_notes_are_found_by_their_whole_text_and_filtered() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        await agent.notes.add("error", "the tent", {"happened": "it fell", "cause": "a gale from the north"})
        await agent.notes.add("decision", "the rope", {"decision": "we buy hemp", "reasoning": "it holds a gale"})
        away, _ = await agent.notes.add("plan", "the boat", {"goal": "sail through a gale"})
        await agent.notes.archive(away.id)
        shown = await client.get(f"/agents/{agent.id}/notes")
        empty = await client.get(f"/agents/{agent.id}/notes", params={"q": "zeppelin"})

        assert await titles(client, agent) == ["the rope", "the tent"]
        assert await titles(client, agent, q="hemp") == ["the rope"]
        assert sorted(await titles(client, agent, q="gale")) == ["the rope", "the tent"]
        assert await titles(client, agent, q="gale", kind="error") == ["the tent"]
        assert await titles(client, agent, kind="decision") == ["the rope"]
        assert await titles(client, agent, view="archived") == ["the boat"]
        assert await titles(client, agent, view="archived", q="gale") == ["the boat"]
        assert "a gale from the north" in shown.text
        assert "No notes were found" in text_of(empty.text)
        assert [value["href"] for tag, value in tags_of(shown.text) if value.get("aria-current") == "page"] == [
            f"/agents/{agent.id}/notes"
        ]


async def test_notes_due_for_review_are_shown_and_kept() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        where = f"/agents/{agent.id}/notes"
        for kind in ("plan", "decision", "handoff"):
            note, _ = await agent.notes.add(kind, kind, fields_of(kind))
            await make_old(library, agent, note.id, kind, 30 if kind == "handoff" else 20)
        page = await client.get(where)
        due = await page_of(client, agent, view="review")

        assert [note["title"] for note in due["notes"]] == ["handoff", "plan"]
        assert await titles(client, agent, view="review", kind="plan") == ["plan"]
        assert await titles(client, agent, view="review", q="plan goal") == ["plan"]
        assert page.text.count("due for review") == 2
        await client.post(f"{where}/{due['notes'][0]['id']}/keep?view=review")
        assert await titles(client, agent, view="review") == ["plan"]


async def test_what_is_written_changed_deleted_or_put_away_is_undone_from_the_notice() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        where = f"/agents/{agent.id}/notes"
        page = await client.post(where, data={"kind": "doc", "title": "one", "text": "the text"})
        await undo(client, page)
        assert await agent.notes.list() == []
        note, _ = await agent.notes.add("doc", "one", {"text": "the text"})
        await undo(client, await client.post(f"{where}/{note.id}", data={"title": "two", "text": "new"}))
        assert (await agent.notes.get(note.id)).text == note.text
        page = await client.post(f"{where}/{note.id}/delete?kind=doc")
        assert await agent.notes.list() == [] and "“one” was deleted." in text_of(page.text)
        await undo(client, page)
        assert [one.title for one in await agent.notes.list()] == ["one"]
        page = await client.post(f"{where}/{note.id}/archive")
        assert await agent.notes.list() == []
        await undo(client, page)
        assert [one.title for one in await agent.notes.list()] == ["one"]
        page = await client.post(f"{where}/{note.id}/restore")
        await undo(client, page)
        assert await agent.notes.list() == []


async def test_a_form_or_filter_that_is_wrong_says_so_and_changes_nothing() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        where = f"/agents/{agent.id}/notes"
        note, _ = await agent.notes.add("doc", "one", {"text": "the text"})
        wrong: tuple[tuple[str, dict[str, str], int], ...] = (
            (where, {"kind": "poem", "title": "x", "text": "y"}, 422),
            (where, {"kind": "doc", "title": " ", "text": "y"}, 422),
            (where, {"kind": "doc", "title": "x"}, 422),
            (where, {"kind": "doc", "title": "x", "text": "y" * 30_000}, 422),
            (f"{where}/{note.id}", {"title": "", "text": "y"}, 422),
            (f"{where}/{note.id}", {"title": "one", "text": ""}, 422),
            (f"{where}/x", {"title": "one"}, 422),
            (f"{where}/passage-00000000-0000-4000-8000-000000000000/delete", {}, 404),
            (f"{where}/undo", {"number": "²"}, 422),
        )
        for path, form, status in wrong:
            page = await client.post(path, data=form)
            assert page.status_code == status, (path, form)
            assert any(values.get("role") == "alert" for _, values in tags_of(page.text)), path
        for query in ({"kind": "poem"}, {"view": "odd"}, {"new": "poem"}, {"after": "passage-0"}):
            page = await client.get(where, params=query)
            assert page.status_code == 200 and next(iter(query.values())) in text_of(page.text), query
        assert [one.text for one in await agent.notes.list()] == [note.text]


async def test_hostile_texts_are_shown_as_texts() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        await agent.notes.add("doc", HOSTILE[:200], {"text": HOSTILE, "sources": "\n" + HOSTILE}, tags=[HOSTILE])
        page = await client.get(f"/agents/{agent.id}/notes", params={"q": HOSTILE})
        plain = await client.get(f"/agents/{agent.id}/notes")

    for one in (page, plain):
        assert HOSTILE in text_of(one.text)
        assert not any(tag == "script" and not values.get("src") for tag, values in tags_of(one.text))


async def test_pages_of_notes_hold_each_one_once() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        for number in range(60):
            await agent.notes.add("doc" if number % 2 else "plan", str(number), {"text" if number % 2 else "goal": "x"})
        first = await page_of(client, agent)
        rest = await page_of(client, agent, **httpx.QueryParams(first["more"]))
        kind = await page_of(client, agent, kind="doc")

    assert [note["title"] for note in (*first["notes"], *rest["notes"])] == [str(one) for one in reversed(range(60))]
    assert rest["more"] is None and kind["more"] is None
    assert len(kind["notes"]) == 30
