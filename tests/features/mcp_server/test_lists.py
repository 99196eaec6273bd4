"""Lists and what is said of one name: nothing hides anything, and tags are shown."""

from __future__ import annotations

from pathlib import Path

from perdure import AsyncPerdure
from perdure.testing import InlineStore
from tests.features.mcp_server.clients import connected, opened, refused, said
from tests.features.mcp_server.test_tools import id_in


async def test_notes_hide_no_passage(tmp_path: Path) -> None:
    """Also where all of the newest texts are notes; a text with the tag "note" is none."""
    async with connected(tmp_path) as client:
        first = id_in(await said(client, "memory_remember", text="Deploys run on Fridays."))
        tagged = id_in(await said(client, "memory_remember", text="A text.", tags=["note"]))
        notes = [
            id_in(await said(client, "note", kind="doc", title=f"n{number}", fields={"text": "x"}))
            for number in range(5)
        ]
        listed = await said(client, "memory_list", kind="passages", limit=2)

    assert first in listed and tagged in listed and not any(note in listed for note in notes)


async def test_tags_are_shown_where_a_text_is(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await said(client, "memory_remember", text="Deploys run on Fridays.", tags=["release", "weekly"])
        await said(client, "note", kind="doc", title="Deploys", fields={"text": "Deploys need a key."})
        listed = await said(client, "memory_list", kind="passages")
        found = await said(client, "memory_search", query="when do deploys run?")
        timeline = await said(client, "memory_timeline")

    assert all("[release, weekly]" in text for text in (listed, found, timeline))
    assert "[note" not in found and "[doc" not in found


async def test_a_name_without_facts_is_looked_for_in_texts_notes_and_messages(tmp_path: Path) -> None:
    """Each with its id; what only has other words in common is left out."""
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.send("Have you met Zora?")
        async with opened(perdure, None, agent="ann") as client:
            text = id_in(await said(client, "memory_remember", text="The migration was written by Zora."))
            long = "word " * 200 + "as zora said, never on Mondays"
            note = id_in(await said(client, "note", kind="decision", title="Dates", fields={"decision": long}))
            other = id_in(await said(client, "memory_remember", text="The Zorapedia is a wiki."))
            known = await said(client, "memory_entity", name="Zora")
            nothing = await said(client, "memory_entity", name="Quentin")
            empty = await refused(client, "memory_entity", name=" ")

    assert known.startswith("No facts about 'Zora'. It is named in:")
    assert text in known and note in known and "never on Mondays" in known and "user: Have you met Zora?" in known
    assert other not in known and nothing.startswith("Nothing names 'Quentin'") and "is empty" in empty
