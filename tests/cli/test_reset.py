"""`/reset` in the chat, and `perdure agent reset`."""

from __future__ import annotations

from pathlib import Path

from perdure import Perdure
from perdure.settings import Settings
from tests.support.programs import open_chat, perdure, run_inside


async def test_the_chat_asks_before_it_resets() -> None:
    """This conversation only; a program is not asked."""
    async with open_chat() as chat:
        await chat.type_lines("hello", "/reset", "n")
        count = await chat.agent.message_count()
        await chat.type_lines("/reset", "y", "again")

        assert count == 2
        assert "2 messages out of view; memory blocks, archives and files are as they were." in chat.out.getvalue()
        assert [message.text for message in await chat.agent.messages()] == ["again", "OK."]
    async with open_chat(person=False, terminal=False) as chat:
        assert await chat.type_lines("hello", "/reset", "/reset") == 0
        assert chat.out.getvalue().splitlines()[1:] == [
            "2 messages out of view; memory blocks, archives and files are as they were.",
            "Nothing was in view; memory blocks, archives and files are as they were.",
        ]


def test_the_command_resets_all_conversations_when_it_is_told_to(tmp_path: Path) -> None:
    """Without a terminal nobody can be asked, so nothing is done without --yes."""
    settings = Settings(model="perdure/extractive", embedding="none")
    with Perdure(tmp_path / "perdure.db", settings=settings) as store:
        agent = store.create_agent("ada")
        agent.send("My name is Ada.")
        agent.send("Hello.", conversation=agent.new_conversation().id)

    refused = perdure(tmp_path, "agent", "reset", "ada")
    unknown = run_inside(tmp_path, "agent", "reset", "nobody", "--yes")
    result = run_inside(tmp_path, "agent", "reset", "ada", "--yes")

    assert (refused.returncode, unknown.returncode, result.returncode) == (1, 1, 0)
    assert "--yes" in refused.stderr
    assert "out of view" in result.stdout
    with Perdure(tmp_path / "perdure.db", settings=settings) as store:
        assert store.agent("ada").messages() == []
        assert "Ada" in store.agent("ada").blocks.get("human").value
