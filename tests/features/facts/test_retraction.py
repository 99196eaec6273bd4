"""What becomes of facts whose message, passage or document changes or goes."""

from __future__ import annotations

import pytest

from perdure import InvalidInput
from perdure.core.blocks import Author
from perdure.core.messages import Text
from tests.features.facts.test_background import PAUSE_S, Scribe, opened, pause, said

USER = Author(kind="user", id="user")


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_passage_is_an_episode_of_its_text(deleted: bool) -> None:
    """Its facts go with it; a changed one is extracted again."""
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent()
        passage = await agent.archive("I moved")
        await pause(perdure)
        assert await said(agent) == ["Ada said I moved."]
        if deleted:
            await agent.delete_passage(passage.id)
        else:
            await agent.update_passage(passage.id, text="I stayed")
        assert await said(agent) == []
        await pause(perdure, 2 * PAUSE_S)

        assert await said(agent) == ([] if deleted else ["Ada said I stayed."])
        assert scribe.texts == [["I moved"], *([] if deleted else [["I stayed"]])]


async def test_a_changed_message_is_extracted_again() -> None:
    """A fact that another message says too stays."""
    async with opened(Scribe()) as perdure:
        agent = await perdure.create_agent()
        for text in ("I moved", "I moved", "I swim"):
            await agent.send(text)
            await pause(perdure, 2 * PAUSE_S)
        first, _, last = [message for message in await agent.messages() if message.role == "user"]
        for message in (first, last):
            await agent.edit_message(message.id, "user", [Text("I rest")], author=USER)
        assert await said(agent) == ["Ada said I moved.", "Ada said OK.."]
        await pause(perdure, 2 * PAUSE_S)

        assert await said(agent) == ["Ada said I moved.", "Ada said OK..", "Ada said I rest."]


async def test_a_document_is_read_line_by_line() -> None:
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent()
        await agent.facts.ingest(
            '{"user": {"home_town": "Turin", "likes": ["tea", "go"], "pets": [{"name": "Rex"}], "age": null}}',
            kind="json",
        )

        assert scribe.texts == [["user, home town: Turin\nuser, likes: tea; go\nuser, pets, 1, name: Rex"]]
        for text in ("{", "3", '"I like figs."'):
            with pytest.raises(InvalidInput, match="document"):
                await agent.facts.ingest(text, kind="json")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"user": {"home_town": "Turin"}}', "user, home town: Turin"),
        ('\n [{"likes": "tea"}] ', "1, likes: tea"),
        ("[1] I like tea.", "[1] I like tea."),
        ('{"likes": "tea"', '{"likes": "tea"'),
        ('"tea"', '"tea"'),
        ("17", "17"),
    ],
)
async def test_a_text_that_is_a_document_is_read_as_one(text: str, read: str) -> None:
    async with opened(scribe := Scribe()) as perdure:
        agent = await perdure.create_agent()
        await agent.facts.ingest(text)
        await agent.facts.ingest(text, kind="text")

        assert scribe.texts == [[read], [text]]
