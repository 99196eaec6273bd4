"""What a snapshot brings back and what not: steps, calls that wait, forgotten texts, shared blocks, bad documents."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import ConversationBusy, InvalidInput, NotFound
from perdure.context.sections.assemble import canonical
from perdure.core.forgetting.corrections import Correction
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Draft, Text
from perdure.domain.conversations import agent_copies
from perdure.engine.records.rows import encode_drafts
from perdure.features.snapshots.tables import Snapshots
from perdure.features.snapshots.values import HASH, QueuedRequest, hash_of
from perdure.storage.tx import Tx
from perdure.testing import calls
from tests.features.snapshots.histories import (
    EVERYTHING,
    FORGOTTEN,
    next_request,
    open_world,
    without_ids,
    without_versions,
)
from tests.support.library import SlowSpeaker, open_async, open_sync


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_after_going_back_to_a_step_the_same_message_is_the_same_request(tmp_path: Path, seed: int) -> None:
    """Whatever happened behind the step: the recorded request of the next run is sent again, byte for byte."""
    world = await open_world(tmp_path / "perdure.db", 1_000 + seed)
    async with world.perdure:
        for name in world.random.choices([one for one in EVERYTHING if one not in ("wait", "compact")], k=5):
            await world.do(name)
        step = (await world.agent.steps(limit=1))[0]
        at = world.clock.now()
        original = await next_request(world, world.agent, at)
        for name in world.random.choices(EVERYTHING, k=4):
            await world.do(name)
        clone = await world.agent.snapshots.clone("clone", step=step.id)
        restored = await world.agent.snapshots.restore(step=step.id)
        again = await next_request(world, world.agent, at)
        of_clone = await next_request(world, world.perdure.agent_of(clone.agent_id), at)

        if b"memory_delta" not in original.splitlines()[-3]:  # an edit between the step and the message is no part
            assert (restored.left, clone.left) == ([], [])
            assert _messages(again) == _messages(original), world.done
            assert _messages(of_clone) == _messages(original), world.done


async def test_an_agent_that_has_said_nothing_is_brought_back(tmp_path: Path) -> None:
    """Its first request after that is the one that it would have sent. A clone has it, too."""
    world = await open_world(tmp_path / "perdure.db", 7)
    async with world.perdure:
        agent = world.perdure.agent_of((await world.perdure.create_agent("new", human="Ann likes opera.")).id)
        kept, at = await agent.snapshots.make(), world.clock.now()
        original = await next_request(world, agent, at)
        await agent.blocks.update("human", "Ann likes jazz.")
        await agent.send("And she has moved.")
        before = await next_request(world, agent, at)
        clone = await agent.snapshots.clone("clone", kept.number)
        restored = await agent.snapshots.restore(kept.number)
        again = await next_request(world, agent, at)
        of_clone = await next_request(world, world.perdure.agent_of(clone.agent_id), at)

        assert (restored.left, clone.left) == ([], [])
        first, *others = (_without_names(one, agent.id, clone.agent_id) for one in (original, again, of_clone, before))
        assert [one == first for one in others] == [True, True, False]


async def test_a_clone_is_told_that_a_block_is_gone(tmp_path: Path) -> None:
    """It was detached after the last request, whose prefix shows it still."""
    world = await open_world(tmp_path / "perdure.db", 9)
    async with world.perdure:
        await world.agent.send("Hello.")
        await world.agent.blocks.detach("human")
        clone = world.perdure.agent_of((await world.agent.snapshots.clone("clone")).agent_id)
        at = world.clock.now()
        original, of_clone = [await next_request(world, one, at) for one in (world.agent, clone)]

        assert b"detached" in original
        assert _without_names(of_clone, world.agent.id, clone.id) == _without_names(original, world.agent.id)


async def test_a_clone_of_an_older_snapshot_goes_on(tmp_path: Path) -> None:
    """It has the runs and steps up to there, and none of later ones, whose numbers its own have."""
    world = await open_world(tmp_path / "perdure.db", 8)
    async with world.perdure:
        kept = await world.agent.snapshots.make()
        steps = len(await world.agent.steps())
        for _ in range(3):
            await world.agent.send("Something else.")
        clone = world.perdure.agent_of((await world.agent.snapshots.clone("clone", kept.number)).agent_id)
        copied = len(await clone.steps())
        reply = await clone.send("Are you there?")

        assert copied == steps
        assert reply.text and len(await clone.steps()) == steps + 1


def _without_names(request: bytes, *agent_ids: str) -> str:
    """A request without what a new prefix names anew."""
    return re.sub(r'marker\\": \\"\d+', "marker", without_ids(request, *agent_ids).decode())


def _messages(request: bytes) -> list[bytes]:
    """The lines of a request that are messages, without notices of edits."""
    return [line for line in request.splitlines() if line.startswith(b'{"role"') and b"memory_delta" not in line]


async def test_calls_that_waited_wait_again_and_are_answered_otherwise(tmp_path: Path) -> None:
    world = await open_world(tmp_path / "perdure.db", 0)
    async with world.perdure:
        await world.do("wait")
        (waiting,) = await world.agent.pending()
        step = (await world.agent.steps(limit=1))[0]
        kept = await world.agent.snapshots.make()
        await world.agent.approve()
        await world.agent.snapshots.restore(kept.number)
        (again,) = await world.agent.pending()
        await world.agent.deny()
        texts = [result.text for one in await world.agent.messages() for result in one.results]
        await world.agent.snapshots.restore(step=step.id)
        (at_step,) = await world.agent.pending()
        clone = world.perdure.agent_of((await world.agent.snapshots.clone("clone")).agent_id)
        (of_clone,) = await clone.pending()
        await clone.approve()

        assert {one.call.call_id for one in (waiting, again, at_step, of_clone)} == {waiting.call.call_id}
        assert ["denied" in text for text in texts] == [True]
        assert "paid" in [result.text for one in await clone.messages() for result in one.results][-1]
        assert len(await world.agent.pending()) == 1


async def test_what_was_forgotten_does_not_come_back(tmp_path: Path) -> None:
    """Neither by a restore nor in a clone nor in a file: not in messages, blocks, the prompt or settings."""
    world = await open_world(tmp_path / "perdure.db", 0)
    agent, secret = world.agent, "84213"
    async with world.perdure:
        await agent.blocks.update("human", f"Ann.\n{FORGOTTEN}.")
        await agent.edit({"system": f"Be kind. {FORGOTTEN}."})
        await agent.send(f"{FORGOTTEN}, remember.")
        kept = await agent.snapshots.make()
        await agent.blocks.update("human", "Ann.")
        await agent.edit({"system": "Be kind."})
        world.clock.advance(60)
        await agent.forget(FORGOTTEN)
        document = json.dumps(await agent.snapshots.document(kept.number))
        clone = world.perdure.agent_of((await agent.snapshots.clone("clone", kept.number)).agent_id)
        await agent.snapshots.restore(kept.number)
        requests = [await next_request(world, one, world.clock.now()) for one in (agent, clone)]

        for one in (agent, clone):
            assert secret not in (await one.blocks.get("human")).value
            assert not [said for said in await one.messages() if secret in said.text]
        assert [secret.encode() in request for request in requests] == [False, False]
        assert secret not in document


async def test_a_request_that_waited_waits_again_without_what_was_forgotten(tmp_path: Path) -> None:
    world = await open_world(tmp_path / "perdure.db", 0)
    draft = Draft(id=MessageId("message-1"), role="user", parts=(Text(f"{FORGOTTEN}. And mine?"),))
    waiting = QueuedRequest(run_id="run-1", waiting_input=encode_drafts([draft], [5]), max_steps=5, background=True)
    async with world.perdure:
        made = await world.agent.snapshots.make()
        await world.agent.send(f"{FORGOTTEN}.")
        await world.agent.forget(FORGOTTEN)
        queued = replace(made, moment=replace(made.moment, queue=[waiting]))
        kept = await world.agent._store.write(lambda tx: tx.of(Snapshots).add(queued))
        await world.agent.snapshots.restore(kept.number)
        while len(await world.agent.messages()) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

        assert [one.text for one in await world.agent.messages()][2:] == ["[redacted]. And mine?", "OK."]


async def test_a_queue_behind_calls_that_wait_runs_where_the_snapshot_is_brought_back(tmp_path: Path) -> None:
    """In a clone, in an agent of the file and in the agent itself: when they are answered, in the order of before, and
    with what was set for them."""
    world = await open_world(tmp_path / "perdure.db", 0)
    async with world.perdure:
        world.model.go.clear()
        world.model._script.append(calls("pay", amount=5))
        for text in ("Pay.", "And one?", "And two?"):
            await world.agent.submit(text, max_steps=3, max_tokens=10_000)
        world.model.go.set()
        while not await world.agent.pending():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        kept = await world.agent.snapshots.make()
        document = await world.agent.snapshots.document(kept.number)
        made = [await world.agent.snapshots.clone("clone", kept.number)]
        made.append(await world.perdure.load_snapshot(document, name="loaded"))
        for agent in (world.agent, *(world.perdure.agent_of(one.agent_id) for one in made)):
            before = len(await agent.messages())
            limits = [(run.max_steps, run.options.max_tokens) for run in await agent.runs(limit=2)]
            assert limits == [(3, 10_000)] * 2
            await agent.approve()
            while len(await agent.messages()) < before + 6:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            said = [one.text for one in await agent.messages() if one.role == "user"]
            assert said[-2:] == ["And one?", "And two?"]
        await world.agent.snapshots.restore(kept.number)
        assert len(await world.agent.pending()) == 1
        assert [run.status for run in await world.agent.runs(limit=2)] == ["queued", "queued"]


async def test_a_file_brings_the_agent_back_as_its_snapshot_does(tmp_path: Path) -> None:
    """Also where the snapshot is deleted. A file of another agent, or one whose log is not here, changes nothing."""
    world = await open_world(tmp_path / "perdure.db", 0)
    agent = world.agent
    async with world.perdure:
        at = world.clock.now()
        kept = await agent.snapshots.make()
        document = await agent.snapshots.document(kept.number)
        await agent.snapshots.delete(kept.number)
        original = await next_request(world, agent, at)
        await agent.blocks.update("human", "Ben")
        said = [one.text for one in await agent.messages()]
        other = await world.perdure.create_agent("ben")
        with pytest.raises(InvalidInput, match="of another agent"):
            await other.snapshots.restore(document=document)
        later = copy.deepcopy(document)
        later["moment"].update(upto_seq=later["moment"]["upto_seq"] + 2)
        tools = copy.deepcopy(document)
        tools["moment"].update(settings={"guards": 7})
        for changed, why in ((later, "differ"), (tools, "guards")):
            with pytest.raises(InvalidInput, match="hash"):
                await agent.snapshots.restore(document=changed)
            changed[HASH] = hash_of(changed)
            with pytest.raises(Exception, match=why):
                await agent.snapshots.restore(document=changed)
        unchanged = [one.text for one in await agent.messages()]
        restored = await agent.snapshots.restore(document=document)
        again = await next_request(world, agent, at)

        assert unchanged == said
        assert (restored.hidden, restored.left) == (2, [])
        assert without_versions(again) == without_versions(original)


def test_a_block_of_others_is_left_unless_it_is_asked_for(tmp_path: Path) -> None:
    with open_sync(tmp_path / "perdure.db") as perdure:
        ann, ben = perdure.create_agent("ann"), perdure.create_agent("ben")
        shared = perdure.blocks.create("company", "We sell tea.")
        for agent in (ann, ben):
            agent.blocks.attach(shared.id)
        kept = ann.snapshots.make()
        ann.blocks.update("company", "We sell coffee.")
        left = ann.snapshots.restore(kept.number)
        stays = ben.blocks.get("company").value
        ann.snapshots.restore(kept.number, shared=True)

        assert ["other agents have it too" in one for one in left.left] == [True]
        assert (stays, ben.blocks.get("company").value) == ("We sell coffee.", "We sell tea.")


async def test_while_a_run_goes_on_only_its_earlier_steps_are_states(tmp_path: Path) -> None:
    model = SlowSpeaker("Hel", "lo.")
    async with await open_async(tmp_path / "perdure.db", model=model) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.submit("Hello.")
        await model.speaking.wait()
        with pytest.raises(ConversationBusy):
            await agent.snapshots.make()
        with pytest.raises(ConversationBusy):
            await agent.snapshots.clone("ben")
        model.go.set()


def test_what_left_the_view_is_not_found_and_past_requests_stay(tmp_path: Path) -> None:
    """Searches see what is in view; every request that was made can be built again."""
    with open_sync(tmp_path / "perdure.db", tools=()) as perdure:
        agent = perdure.create_agent("ann")
        agent.send("I keep a walrus.")
        kept = agent.snapshots.make()
        agent.send("I keep an ocelot.")
        undo = agent.snapshots.restore(kept.number).undo
        agent.send("I keep a heron.")
        hidden = [hit.message.text for hit in agent.search("ocelot")]
        requests = [agent.request(step.id) for step in agent.steps()]
        agent.snapshots.restore(undo)
        found = [hit.message.text for hit in agent.search("ocelot")]
        again = [agent.request(step.id) for step in agent.steps()]

        assert (hidden, found) == ([], ["I keep an ocelot."])
        assert [canonical(one) for one in again] == [canonical(one) for one in requests]
        assert b"ocelot" not in canonical(requests[0])


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "number": (lambda one: one["moment"].update(upto_seq=2**70), "too large"),
    "column": (lambda one: one["rows"]["messages"][0].update(x=1), r"messages\.0\.x: Extra"),
    "table": (lambda one: one["rows"].update(api_keys=[]), "api_keys: Extra"),
    "twice": (lambda one: one["rows"]["messages"].append(dict(one["rows"]["messages"][0])), "the same"),
    "parts": (lambda one: one["rows"]["messages"][0].update(parts="{"), "rows"),
    "field": (lambda one: one["moment"].pop("model"), "moment.model"),
    "setting": (lambda one: one["moment"].update(settings={"guards": 7}), "guards"),
    "label": (lambda one: one["blocks"][0].update(label="<x>"), "label"),
    "nothing": (lambda one: one.update(rows={}), "differ|rows"),
    "type of a column": (lambda one: one["rows"]["messages"][0].update(tokens="7"), r"messages\.0\.tokens"),
    "large": (lambda one: one["rows"]["runs"][0].update(background=40_000), r"runs\.0\.background"),
    "no value": (lambda one: one["rows"]["runs"][0].update(status=None), r"runs\.0\.status"),
    "half a character": (lambda one: one["rows"]["messages"][0].update(role="\ud800"), r"messages\.0\.role"),
    "no numbers": (lambda one: one["rows"]["prefixes"][0].update(pinned='[{"a": 1}]'), r"prefixes\.0\.pinned"),
    "no object": (lambda one: one["rows"]["prefixes"][0].update(seen="null"), "rows or settings"),
    "rules": (lambda one: one["moment"].update(settings={"tool_rules": None}), "rows or settings"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_document_that_is_no_agent_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    change, why = CHANGES[name]
    with open_sync(tmp_path / "perdure.db") as perdure:
        agent = perdure.create_agent("ann")
        agent.send("one")
        document = copy.deepcopy(agent.snapshots.document(agent.snapshots.make().number))
        change(document)
        with pytest.raises(InvalidInput, match="hash"):
            perdure.load_snapshot(document, name="ben")
        document[HASH] = hash_of(document)
        with pytest.raises(Exception, match=why) as refused:
            perdure.load_snapshot(document, name="ben")

        assert type(refused.value).__name__ in ("InvalidInput", "SnapshotDiffers")
        with pytest.raises(NotFound):
            perdure.agent("ben")


def test_an_agent_with_as_many_tags_as_there_may_be_is_cloned(tmp_path: Path) -> None:
    """With its tags and metadata and nothing beside them: what marks an unfinished clone counts towards no limit."""
    with open_sync(tmp_path / "perdure.db") as perdure:
        tags, metadata = sorted(f"tag {number:03}" for number in range(200)), {"a": "x" * 499_990}
        agent = perdure.create_agent("ann", tags=tags, metadata=metadata)
        agent.snapshots.clone("ben")

        info = perdure.agent("ben").info
        assert (sorted(info.tags), info.metadata, info.hidden) == (tags, metadata, False)


def test_a_clone_has_archives_tools_and_its_own_memory(tmp_path: Path) -> None:
    """What one of the two learns, the other does not know."""
    with open_sync(tmp_path / "perdure.db") as perdure:
        agent = perdure.create_agent("ann", tools=["core_memory_append"])
        agent.archive("A passage about walruses.")
        made = agent.snapshots.clone("ben")
        clone = perdure.agent("ben")
        clone.blocks.update("human", "Ben")
        clone.archive("Another passage.")

        assert made.left == []
        assert [tool.name for tool in clone.tools.list()] == [tool.name for tool in agent.tools.list()]
        assert (agent.blocks.get("human").value, len(agent.search_archive("passage"))) == ("", 1)
        assert len(clone.search_archive("passage")) == 2
        assert "perdure:unfinished" not in clone.info.tags and not clone.info.hidden


async def test_labels_that_were_given_round_are_as_they_were(tmp_path: Path) -> None:
    """Each block has its old label again, also where another block had it meanwhile."""
    async with await open_async(tmp_path / "perdure.db") as perdure:
        agent = await perdure.create_agent("ann")
        for label in ("one", "two"):
            await agent.blocks.create(label, f"I was {label}.")
        kept = await agent.snapshots.make()
        for before, after in (("one", "three"), ("two", "one"), ("three", "two")):
            await agent.blocks.edit(before, {"label": after})
        restored = await agent.snapshots.restore(kept.number)
        again = {block.label: block.value for block in await agent.blocks.list()}
        await agent.snapshots.restore(restored.undo)
        undone = {block.label: block.value for block in await agent.blocks.list()}

    assert restored.left == []
    assert (again["one"], again["two"]) == ("I was one.", "I was two.")
    assert (undone["one"], undone["two"]) == ("I was two.", "I was one.")


async def test_a_clone_has_the_labels_of_its_moment(tmp_path: Path) -> None:
    """Of a snapshot and of a step, also where another block has the label now."""
    async with await open_async(tmp_path / "perdure.db") as perdure:
        agent = await perdure.create_agent("ann")
        for label in ("one", "two"):
            await agent.blocks.create(label, f"I was {label}.")
        await agent.send("Hello.")
        kept = await agent.snapshots.make()
        step = (await agent.steps())[0].id
        for before, after in (("one", "three"), ("two", "one"), ("three", "two")):
            await agent.blocks.edit(before, {"label": after})
        document = await agent.snapshots.document((await agent.snapshots.make(step=step)).number)
        for made in (
            await agent.snapshots.clone("of snapshot", kept.number),
            await agent.snapshots.clone("of step", step=step),
            await perdure.load_snapshot(document, name="of file"),
        ):
            clone = await perdure.agent(made.name)
            values = {block.label: block.value for block in await clone.blocks.list()}
            assert (made.left, values["one"], values["two"]) == ([], "I was one.", "I was two.")


async def test_a_label_that_a_shared_block_keeps_is_left_to_it(tmp_path: Path) -> None:
    async with await open_async(tmp_path / "perdure.db") as perdure:
        ann, ben = await perdure.create_agent("ann"), await perdure.create_agent("ben")
        shared = await perdure.blocks.create("company", "We sell tea.")
        for agent in (ann, ben):
            await agent.blocks.attach(shared.id)
        await ann.blocks.create("plan", "More tea.")
        kept = await ann.snapshots.make()
        for before, after in (("plan", "old"), ("company", "plan")):
            await ann.blocks.edit(before, {"label": after})
        restored = await ann.snapshots.restore(kept.number)

        assert len(restored.left) == 2
        assert {"plan": "We sell tea."}.items() <= {one.label: one.value for one in await ann.blocks.list()}.items()


async def test_a_clone_has_the_blocks_that_only_conversations_have(tmp_path: Path) -> None:
    """Of the conversation that is cloned and of the others; and those of the agent in whose place they are."""
    async with await open_async(tmp_path / "perdure.db") as perdure:
        agent = await perdure.create_agent("ann", human="Ann")
        other = (await agent.create_conversation(isolated_labels=["human"])).conversation.id
        await agent.blocks.update("human", "Ann Smith")
        for made in (
            await agent.snapshots.clone("of now"),
            await agent.snapshots.clone("of other", conversation=other),
        ):
            clone = await perdure.agent(made.name)
            copied = await clone.conversation_state(next(one.id for one in await clone.conversations() if one.seq))
            (alone,) = copied.isolated_block_ids
            values = (await clone.blocks.get("human")).value, (await perdure.blocks.get(alone)).value

            assert (made.left, values) == ([], ("Ann Smith", "Ann"))


@pytest.mark.parametrize("count", [2, 40])
def test_what_was_forgotten_is_looked_up_as_often_for_many_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """For a clone, a restore and a file: it takes queries for each block and each agent that has it."""
    looked_up: list[AgentId] = []
    list_forgotten = agent_copies.list_forgotten

    def counted(tx: Tx, agent_id: AgentId) -> Sequence[Correction]:
        looked_up.append(agent_id)
        return list_forgotten(tx, agent_id)

    with open_sync(tmp_path / "perdure.db") as perdure:
        agent = perdure.create_agent("ann")
        for number in range(count):
            agent.blocks.create(f"block{number}", "old")
        kept = agent.snapshots.make()
        for number in range(count):
            agent.blocks.update(f"block{number}", "new")
        monkeypatch.setattr(agent_copies, "list_forgotten", counted)

        agent.snapshots.clone("ben", kept.number)
        agent.snapshots.document(kept.number)
        agent.snapshots.restore(kept.number)

        assert agent.blocks.get("block0").value == "old"
        assert 0 < len(looked_up) <= 8


def test_a_clone_of_an_agent_with_many_tools_keeps_few_of_its_settings(tmp_path: Path) -> None:
    """Its tools are attached at once: each time that they change, what the agent was before is written down."""
    with open_sync(tmp_path / "perdure.db") as perdure:
        tools = [perdure.tools.create(f"def tool_{number}():\n    'Do it.'\n").name for number in range(30)]
        agent = perdure.create_agent("ann", tools=tools)
        agent.send("Hello.")
        agent.snapshots.clone("ben")

        clone = perdure.agent("ben")
        assert {tool.name for tool in clone.tools.list()} >= set(tools)
    with closing(sqlite3.connect(tmp_path / "perdure.db")) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM agent_revisions WHERE agent_id = ?", [clone.id])
    assert count <= 4
