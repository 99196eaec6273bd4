"""Notes by the tool `note`: shown whole, changed whole or not at all, put away, kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.core.ids import PassageId
from perdure.features.notes import units
from perdure.testing import InlineStore
from tests.features.mcp_server.clients import connected, opened, refused, said
from tests.features.mcp_server.test_tools import id_in


async def test_a_note_is_read_whole_by_its_id(tmp_path: Path) -> None:
    text = "\n".join(f"line {number} of a long handoff" for number in range(500))
    async with connected(tmp_path) as client:
        note = id_in(await said(client, "note", kind="handoff", title="Long", fields={"state": text}))
        shown = await said(client, "note", id=note)

    assert text in shown and note in shown and "To undo" not in shown


async def test_a_server_that_only_reads_shows_a_whole_note(tmp_path: Path) -> None:
    """By its id or the beginning of it, with which it is also forgotten where that is allowed."""
    text = "\n".join(f"line {number} of a long handoff" for number in range(500))
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        async with opened(perdure, tmp_path) as client:
            note = id_in(await said(client, "note", kind="handoff", title="Long", fields={"state": text}))
        async with opened(perdure, tmp_path, read_only=True) as client:
            shown = [await said(client, "memory_list", kind="notes", id=id) for id in (note, note[:16])]
            unknown = await refused(client, "memory_list", kind="notes", id="passage-00000000")
            other = await refused(client, "memory_list", kind="facts", id=note)
        async with opened(perdure, tmp_path) as client:
            gone = await said(client, "memory_forget", id=note[:16])

    assert shown[0] == shown[1] and text in shown[0] and note in shown[0]
    assert "passage-00000000" in unknown and "kind is 'facts'" in other and "Removed" in gone


async def test_what_needs_a_note_is_refused_without_its_id(tmp_path: Path) -> None:
    plan = {"kind": "plan", "title": "t", "fields": {"goal": "g"}}
    async with connected(tmp_path) as client:
        errors = [await refused(client, "note", **plan, **more) for more in ({"archive": True}, {"keep": True})]
        note = id_in(await said(client, "note", **plan))
        both = await refused(client, "note", id=note, keep=True, archive=True)
        listed = await said(client, "memory_list", kind="notes")

    assert all("give its id" in error for error in errors) and "without title" in both
    assert len(listed.splitlines()) == 2


async def test_at_the_limit_a_note_that_comes_back_is_not_half_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "NOTES_MAX", 1)
    async with connected(tmp_path) as client:
        away = id_in(await said(client, "note", kind="doc", title="before", fields={"text": "x"}))
        await said(client, "note", id=away, archive=True)
        await said(client, "note", kind="doc", title="other", fields={"text": "x"})
        error = await refused(client, "note", id=away, title="after", archive=False)
        shown = await said(client, "note", id=away)

    assert "the limit is 1" in error and "# before" in shown and "archived" in shown


async def test_a_note_that_a_review_keeps_is_fresh_again(tmp_path: Path) -> None:
    async with await AsyncPerdure.open(store=InlineStore()) as perdure, opened(perdure, tmp_path) as client:
        note = id_in(await said(client, "note", kind="plan", title="mine", fields={"goal": "x"}))
        (agent,) = await perdure.agents()
        metadata = {"kind": "plan", "changed_at": "2020-01-01T00:00:00+00:00"}
        await agent.update_passage(PassageId(note), metadata=metadata)
        due = await said(client, "memory_list", kind="notes", stale=True)
        other = await said(client, "memory_list", kind="notes", stale=True, note_kind="doc")
        kept = await said(client, "note", id=note, keep=True)
        after = await said(client, "memory_list", kind="notes", stale=True)

    assert note in due and other == "There are no stale doc notes."
    assert "still holds" in kept and after == "There are no stale notes."


async def test_notes_that_were_put_away_are_listed(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        note = id_in(await said(client, "note", kind="plan", title="mine", fields={"goal": "x"}))
        none = await said(client, "memory_list", kind="notes", archived=True)
        await said(client, "note", id=note, archive=True)
        listed = await said(client, "memory_list", kind="notes", archived=True, note_kind="plan")
        both = await refused(client, "memory_list", kind="notes", archived=True, stale=True)
        other = await refused(client, "memory_list", kind="facts", note_kind="plan")

    assert none == "There are no archived notes." and note in listed
    assert "not reviewed" in both and "kind is 'facts'" in other
