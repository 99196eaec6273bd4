"""Memory blocks as a person works on them, beside the agents that do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from perdure import BlockLimitExceeded, BlockNotFound, InvalidInput, NotFound, Perdure, VersionConflict
from perdure.core.errors import AlreadyExists, BlockReadOnly
from perdure.core.ids import UserId
from perdure.core.incoming.principals import LOCAL, current_principal
from perdure.testing import ScriptedModel, calls, says
from tests.support.library import MODEL, open_async, open_sync


def test_an_update_names_the_version_it_has_seen(tmp_path: Path) -> None:
    """Somebody who has not seen the newest version writes nothing; without a version the last one wins."""
    with open_sync(tmp_path / "agents.db") as perdure:
        blocks = perdure.create_agent(human="Ada").blocks
        seen = blocks.get("human")
        blocks.update("human", "Ada, Turin", expected=seen.version)
        with pytest.raises(VersionConflict, match="is at version 1, not 0") as conflict:
            blocks.update("human", "Grace", expected=seen.version)

        assert (conflict.value.expected, conflict.value.found) == (0, 1)
        assert blocks.get("human").value == "Ada, Turin"
        assert blocks.update("human", "Grace").version == 2


async def test_a_change_names_the_user_who_asked_for_it(tmp_path: Path) -> None:
    """Also in a store with threads of its own, which know nothing of a request."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        token = current_principal.set(replace(LOCAL, user_id=UserId("user-ann")))
        try:
            agent = await perdure.create_agent(human="Ada")
            await agent.blocks.append("human", "Turin")
            await agent.blocks.update("human", "Grace")
            await agent.blocks.replace_line("human", 1, "Ann")
            await agent.blocks.restore("human", 0)
        finally:
            current_principal.reset(token)

        assert {version.author.id for version in await agent.blocks.history("human")} == {"user-ann"}


def test_history_tells_who_changed_what_and_where_from(tmp_path: Path) -> None:
    """Each version has its author, diff, and, where an agent made it, run and message."""
    script = (calls("memory_replace", label="human", old_string="Ada", new_string="Grace"), says("done"))
    with open_sync(tmp_path / "agents.db", *script) as perdure:
        agent = perdure.create_agent(human="Ada")
        agent.blocks.append("human", "Turin")
        reply = agent.send("I am Grace.")

        newest, appended, first = agent.blocks.history("human")
        assert [version.version for version in (newest, appended, first)] == [2, 1, 0]
        assert [version.value for version in (newest, appended, first)] == ["Grace\nTurin", "Ada\nTurin", "Ada"]
        assert newest.author.kind == "agent"
        assert newest.author.run_id == reply.run_id
        assert newest.author.message_id == reply.messages[1].id
        assert newest.diff == "@@ -1,2 +1,2 @@\n-Ada\n+Grace\n Turin"
        assert (appended.author.kind, appended.author.run_id) == ("user", None)
        assert appended.diff.splitlines()[-1] == "+Turin"
        assert agent.blocks.history("human", limit=1) == [newest]


def test_an_earlier_version_can_be_restored(tmp_path: Path) -> None:
    """It becomes the newest one; nothing of the history is lost."""
    with open_sync(tmp_path / "agents.db") as perdure:
        blocks = perdure.create_agent(human="Ada").blocks
        blocks.update("human", "Grace")

        assert blocks.restore("human", 0).value == "Ada"
        assert [version.value for version in blocks.history("human")] == ["Ada", "Grace", "Ada"]
        for version in (7, -1):
            with pytest.raises(NotFound, match=f"'{version}' not found: block 'human' has the versions 0 to 2"):
                blocks.restore("human", version)
        with pytest.raises(NotFound, match="block 'persona' has version 0 only"):
            blocks.restore("persona", 1)


@pytest.mark.parametrize("field", ["id", "version", "created_at", "colour"])
def test_what_a_block_is_can_not_be_changed(tmp_path: Path, field: str) -> None:
    """Only known fields may be changed; another one is named with those there are, and nothing is written."""
    with open_sync(tmp_path / "agents.db") as perdure:
        blocks = perdure.create_agent().blocks
        before = blocks.get("human")
        error_text = f"a block has no field {field} to change: there are label, value"
        with pytest.raises(InvalidInput, match=error_text):
            blocks.change("human", description="new", **{field: 1})
        with pytest.raises(InvalidInput, match=error_text):
            perdure.blocks.update(before.id, **{field: 1})

        assert blocks.get("human") == before
        assert blocks.change("human", tags=["a"]).tags == ("a",)


def test_another_agent_is_told_of_an_edit_to_a_shared_block(tmp_path: Path) -> None:
    """What one agent writes the other one sees in its next request, as a delta after what it was sent before."""
    model = ScriptedModel(
        says("hello"),
        calls("memory_insert", label="team", new_string="Ship on Friday."),
        says("noted"),
        says("I know."),
    )
    with Perdure(tmp_path / "agents.db", models={MODEL: model}) as perdure:
        team = perdure.blocks.create("team", "We build.")
        reader = perdure.create_agent("reader", model=MODEL, block_ids=[team.id])
        writer = perdure.create_agent("writer", model=MODEL)
        writer.blocks.attach(team.id)
        reader.send("hi")
        writer.send("remember the date")
        reader.send("when do we ship?")

        before, after = model.requests[0], model.requests[-1]
        assert after.system == before.system
        assert after.messages[: len(before.messages)] == before.messages
        (delta,) = (message for message in after.messages if message.kind == "memory_delta")
        delta_json = json.loads(delta.text)
        assert (delta_json["type"], delta_json["label"], delta_json["value"]) == (
            "memory_delta",
            "team",
            "We build.\nShip on Friday.",
        )
        assert not any(message.kind == "memory_delta" for message in model.requests[2].messages)
        assert not any(message.kind == "memory_delta" for message in reader.messages())
        assert reader.blocks.get("team") == writer.blocks.get("team")


def test_a_shared_block_stands_for_the_agent_s_own(tmp_path: Path) -> None:
    """An agent that begins with a shared block `human` has no other; one that is given both is refused."""
    with open_sync(tmp_path / "agents.db") as perdure:
        shared = perdure.blocks.create("human", "Name: Ada")

        agent = perdure.create_agent("one", block_ids=[shared.id])

        assert agent.blocks.get("human").id == shared.id
        assert {block.label for block in agent.blocks.list()} == {"human", "persona"}
        for given in ({"block_ids": [shared.id]}, {"blocks": {"human": "Eva"}}):
            with pytest.raises(InvalidInput, match="human is given twice"):
                perdure.create_agent("two", human="Bob", **given)


def test_a_read_only_block_is_the_persons_alone(tmp_path: Path) -> None:
    """No tool changes it: the model is told so and goes on; its owner may still edit it by hand."""
    script = (calls("memory_insert", label="human", new_string="evil"), says("I can't."))
    with open_sync(tmp_path / "agents.db", *script) as perdure:
        agent = perdure.create_agent(human="Ada")
        agent.blocks.change("human", read_only=True)

        reply = agent.send("overwrite it")

        assert reply.messages[2].results[0].status == "error"
        assert "read-only" in reply.messages[2].text
        assert reply.edits == ()
        with pytest.raises(BlockReadOnly):
            agent.blocks.append("human", "more")
        assert agent.blocks.update("human", "Grace").value == "Grace"


def test_a_block_keeps_its_limit(tmp_path: Path) -> None:
    """Neither person nor tool can make it longer; nothing of the edit is written."""
    script = (calls("memory_insert", label="human", new_string="x" * 100), says("too long"))
    with open_sync(tmp_path / "agents.db", *script) as perdure:
        agent = perdure.create_agent(human="Ada")
        agent.blocks.change("human", limit_chars=10)
        with pytest.raises(BlockLimitExceeded, match="would hold 11 characters, its limit is 10"):
            agent.blocks.update("human", "x" * 11)
        with pytest.raises(BlockLimitExceeded):
            agent.blocks.change("human", limit_chars=2)
        reply = agent.send("write much")

        assert "its limit is 10" in reply.messages[2].text
        assert agent.blocks.get("human").value == "Ada"


def test_blocks_come_and_go(tmp_path: Path) -> None:
    """Made for one agent, shared with another, detached, deleted: each agent sees its own."""
    with open_sync(tmp_path / "agents.db") as perdure:
        one, two = perdure.create_agent("one"), perdure.create_agent("two")
        block = one.blocks.create("notes", "a", description="what to keep", limit_chars=100)
        with pytest.raises(AlreadyExists):
            one.blocks.create("notes")
        two.blocks.attach(block.id)
        assert two.blocks.get("notes").description == "what to keep"
        one.blocks.detach("notes")
        with pytest.raises(BlockNotFound, match="there are persona, human"):
            one.blocks.get("notes")
        assert perdure.blocks.list(label="notes") == [block]
        perdure.blocks.update(block.id, value="b", expected=0)
        assert two.blocks.get("notes").value == "b"
        perdure.blocks.delete(block.id)
        with pytest.raises(NotFound):
            perdure.blocks.get(block.id)
        assert [block.label for block in two.blocks.list()] == ["persona", "human"]


@pytest.mark.parametrize("label", ["", "two words", "/root", "x" * 101, "a\nb"])
def test_a_label_that_can_not_be_used_is_refused(tmp_path: Path, label: str) -> None:
    """The error says which and what would do."""
    with open_sync(tmp_path / "agents.db") as perdure, pytest.raises(InvalidInput, match="label"):
        perdure.blocks.create(label)
